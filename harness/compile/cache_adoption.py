"""Copy what an untrusted process compiled into a folder that another such process may write to.

No link is followed: one planted by either process would lead this unconfined one to other files.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

KEY = re.compile(r"[A-Z2-7]{52}")
MOST_FILES, MOST_BYTES = 4096, 1 << 30
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def adopt(cache: Path, home: Path, below: tuple[str, ...] = ()) -> int:
    """Copy one of Triton's cache folders into a folder `below` a home; return its entries.

    Copies only plain files in folders with names as Triton makes them, and none of its indexes. The
    home itself belongs to this process; no other may replace it.
    """
    count, files, size = 0, 0, 0
    home.mkdir(parents=True, exist_ok=True)
    into = home.joinpath(*below)
    with ExitStack() as opened:
        place = os.open(home, _FOLDER)
        opened.callback(os.close, place)
        for part in below:
            place = _open_folder(place, part, opened)
        for entry in sorted(_listed(cache), key=lambda entry: entry.name):
            if not KEY.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
                continue
            names = []
            with ExitStack() as finished:
                target = _open_folder(place, entry.name, finished)
                for file in sorted(_listed(entry.path), key=lambda file: file.name):
                    if file.name == "lock" or file.name.startswith("__grp__"):
                        continue
                    size += file.stat(follow_symlinks=False).st_size
                    files += 1
                    if files > MOST_FILES or size > MOST_BYTES:
                        return count
                    if _copy(file.path, target, file.name):
                        names.append(file.name)
                for name in names:
                    if name.endswith(".json"):
                        paths = {other: str(into / entry.name / other) for other in names
                                 if other.startswith(name.removesuffix("json"))}
                        with _replacing(target, f"__grp__{name}") as out:
                            out.write(json.dumps({"child_paths": paths}).encode())
            count += 1
    return count


def _listed(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _open_folder(place: int, name: str, closing: ExitStack) -> int:
    """Open a folder inside another; create it, also in place of anything that is not a folder."""
    for _ in range(2):
        with suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=place)
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=place)
            break
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            os.unlink(name, dir_fd=place)
    else:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
    closing.callback(os.close, descriptor)
    return descriptor


def _copy(source: str, target: int, name: str) -> bool:
    """Copy a file; return False for anything but a plain file."""
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return False
    with os.fdopen(fd, "rb") as file, _replacing(target, name) as out:
        shutil.copyfileobj(file, out, 1 << 20)
    return True


@contextmanager
def _replacing(folder: int, name: str) -> Iterator[IO[bytes]]:
    """Write a file that replaces its namesake only when it is complete.

    A process that runs several configurations may have that module loaded, and would crash on a
    partial file.
    """
    part = f".{name}.part"
    with suppress(FileNotFoundError):
        os.unlink(part, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(part, flags, 0o644, dir_fd=folder), "wb") as out:
        yield out
    os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
