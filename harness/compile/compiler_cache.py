"""Private compiler caches: one for each HOME of runners, seeded with the baseline's cache.

A cache shared by two candidates would let one run what the other compiled; an empty cache would
recompile unchanged code for minutes. What one untrusted process compiled is copied into a folder
that another one may write to. No link is followed there: either process could plant one that leads
this unconfined process to other files.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from harness.formats.file_copy import FolderTooLarge, copy_folder, open_plain, remove, walk

FOLDER = "jit"
"""The folder of all caches below a private HOME."""
VARIABLES = {
    "KOPT_JIT_CACHE_DIR": "",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "AITER_JIT_DIR": "aiter",
    "TILELANG_CACHE_DIR": "tilelang",
    "FLYDSL_RUNTIME_CACHE_DIR": "flydsl",
    "CUTE_DSL_CACHE_DIR": "cute",
    "DG_JIT_CACHE_DIR": "deep_gemm",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "CUDA_CACHE_PATH": "cuda",
    "AMD_COMGR_CACHE_DIR": "comgr",
    "NUMBA_CACHE_DIR": "numba",
}
"""Each compiler's variable for its cache, and its folder below `FOLDER`."""
TRITON = (FOLDER, VARIABLES["TRITON_CACHE_DIR"])
"""The path of Triton's cache below a HOME."""
MOST_BYTES = 8 << 30
ORIGIN = ".kopt-origin"
"""The file with the path at which a kept cache was made; some of its files contain that path."""
_GROUP = "__grp__"
"""The start of the names of Triton's file lists, which contain absolute paths."""
KEY = re.compile(r"[A-Z2-7]{52}")
MOST_ADOPTED_FILES, MOST_ADOPTED_BYTES = 4096, 1 << 30
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def environment(home: Path) -> dict[str, str]:
    """Return the variables that place every compiler's cache in a private HOME.

    Triton's autotuner keeps its choice there too: later processes of a kernel do not tune again,
    and a kernel that a candidate leaves unchanged runs with the baseline's choice.
    """
    root = home / FOLDER
    return {**{name: str(root / part) if part else str(root) for name, part in VARIABLES.items()},
            "TRITON_CACHE_AUTOTUNING": "1"}


def private(env: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return an environment whose caches are all in a private HOME, replacing earlier settings."""
    return {**env, **environment(home)}


def seed(warm: Path, home: Path) -> int:
    """Copy a kept cache, if not too large, into a HOME without one; return the number of files.

    Later writes there, also in place, change neither the kept cache nor another copy.
    """
    root = home / FOLDER
    if not warm.is_dir() or root.exists():
        return 0
    try:
        copied = copy_folder(warm, root, most_bytes=MOST_BYTES,
                             should_copy=lambda name: name != ORIGIN)
    except (FolderTooLarge, OSError):  # a full disk is reported by the code that needs it
        return 0
    with suppress(OSError):
        _relocate(root, (warm / ORIGIN).read_text())
    return copied


def keep(home: Path, warm: Path) -> int:
    """Copy a HOME's caches, read-only, to `warm`, to seed others; return the number of files.

    Returns 0 and does nothing if `warm` exists, or if the caches are empty or too large.
    """
    root = home / FOLDER
    if not root.is_dir() or warm.exists() or not any(root.iterdir()):
        return 0
    unfinished = warm.with_name(f"{warm.name}.new")
    remove(unfinished)
    try:
        copied = copy_folder(root, unfinished, most_bytes=MOST_BYTES,
                             should_copy=lambda name: not name.endswith(".lock"))
    except (FolderTooLarge, OSError):
        return 0
    (unfinished / ORIGIN).write_text(str(root))
    for entry, _ in walk(unfinished):
        if entry.is_file(follow_symlinks=False):
            os.chmod(entry.path, 0o444)
    os.rename(unfinished, warm)
    return copied


def _relocate(root: Path, origin: str) -> None:
    """Make Triton's file lists name this copy instead of the original cache."""
    old, new = f"{origin}/".encode(), f"{root}/".encode()
    for entry, _ in walk(root):
        if entry.name.startswith(_GROUP) and entry.is_file(follow_symlinks=False):
            path = Path(entry.path)
            data, status = path.read_bytes(), path.stat()
            if old in data:
                path.write_bytes(data.replace(old, new))
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def adopt(cache: Path, home: Path, below: tuple[str, ...] = (), *,
          known: set[str] | None = None, appears_at: Path | None = None) -> int:
    """Copy a Triton cache into a folder `below` a home; return the number of entries copied.

    Copies only plain files in folders with names as Triton makes them; its indexes are written
    anew. The home itself belongs to this process; no other may replace it. Entries in `known` are
    left out, and copied ones added to it. `appears_at` is the home's path for the process that
    reads it.
    """
    known = set() if known is None else known
    count, files, size = 0, 0, 0
    home.mkdir(parents=True, exist_ok=True)
    into = (appears_at or home).joinpath(*below)
    with ExitStack() as opened:
        folder = os.open(home, _FOLDER)
        opened.callback(os.close, folder)
        for part in below:
            folder = _open_folder(folder, part, opened)
        for entry in sorted(_listed(cache), key=lambda entry: entry.name):
            if not KEY.fullmatch(entry.name) or entry.name in known or \
                    not entry.is_dir(follow_symlinks=False):
                continue
            known.add(entry.name)
            names = []
            with ExitStack() as finished:
                target = _open_folder(folder, entry.name, finished)
                for file in sorted(_listed(entry.path), key=lambda file: file.name):
                    if file.name == "lock" or file.name.startswith(_GROUP):
                        continue
                    size += file.stat(follow_symlinks=False).st_size
                    files += 1
                    if files > MOST_ADOPTED_FILES or size > MOST_ADOPTED_BYTES:
                        return count
                    if _copy(file.path, target, file.name):
                        names.append(file.name)
                for name in names:
                    if name.endswith(".json"):
                        paths = {other: str(into / entry.name / other) for other in names
                                 if other.startswith(name.removesuffix("json"))}
                        with _replacing(target, f"{_GROUP}{name}") as out:
                            out.write(json.dumps({"child_paths": paths}).encode())
            count += 1
    return count


def _listed(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _open_folder(parent: int, name: str, closing: ExitStack) -> int:
    """Open a folder inside another; create it, also in place of anything that is not a folder."""
    for _ in range(2):
        with suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=parent)
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=parent)
            break
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            os.unlink(name, dir_fd=parent)
    else:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
    closing.callback(os.close, descriptor)
    return descriptor


def _copy(source: str, target: int, name: str) -> bool:
    """Copy a file; return False for anything but a plain file."""
    try:
        file = open_plain(source)
    except OSError:
        return False
    with file, _replacing(target, name) as out:
        shutil.copyfileobj(file, out, 1 << 20)
    return True


@contextmanager
def _replacing(folder: int, name: str) -> Iterator[IO[bytes]]:
    """Write a file that replaces the one of its name only when it is complete.

    A process that runs several configurations may have loaded that file as a module, and would
    crash if it were overwritten in part.
    """
    part = f".{name}.part"
    with suppress(FileNotFoundError):
        os.unlink(part, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(part, flags, 0o644, dir_fd=folder), "wb") as out:
        yield out
    os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
