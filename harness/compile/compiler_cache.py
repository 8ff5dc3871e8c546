"""Private compiler caches: one per place that runs a candidate, seeded with the baseline's.

A cache shared by two candidates would let one run what the other compiled; an empty cache would
recompile unchanged code for minutes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from harness.formats.file_copy import CopyResult, FolderTooLarge, copy_folder, remove, walk

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


def environment(home: Path) -> dict[str, str]:
    """Return the variables that place every compiler's cache in a private HOME."""
    root = home / FOLDER
    return {name: str(root / part) if part else str(root) for name, part in VARIABLES.items()}


def private(env: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return an environment in which no cache is shared, replacing earlier settings."""
    return {**env, **environment(home)}


def seed(warm: Path, home: Path) -> CopyResult:
    """Copy a kept cache into a HOME; copy nothing where there is none or it is too large.

    Later writes there, also in place, change neither the kept cache nor another copy.
    """
    root = home / FOLDER
    if not warm.is_dir() or root.exists():
        return CopyResult()
    try:
        copied = copy_folder(warm, root, most_bytes=MOST_BYTES,
                             should_copy=lambda name: name != ORIGIN)
    except (FolderTooLarge, OSError):  # a full disk is reported by the code that needs it
        return CopyResult()
    with contextlib.suppress(OSError):
        _relocate(root, (warm / ORIGIN).read_text())
    return copied


def keep(home: Path, warm: Path) -> CopyResult:
    """Keep a HOME's caches, read-only, as the seed of others; an existing seed is not replaced."""
    root = home / FOLDER
    if not root.is_dir() or warm.exists() or not any(root.iterdir()):
        return CopyResult()
    unfinished = warm.with_name(f"{warm.name}.new")
    remove(unfinished)
    try:
        copied = copy_folder(root, unfinished, most_bytes=MOST_BYTES,
                             should_copy=lambda name: not name.endswith(".lock"))
    except (FolderTooLarge, OSError):
        return CopyResult()
    (unfinished / ORIGIN).write_text(str(root))
    for entry, _ in walk(unfinished):
        if entry.is_file(follow_symlinks=False):
            os.chmod(entry.path, 0o444)
    os.rename(unfinished, warm)
    return copied


def _relocate(root: Path, origin: str) -> None:
    """Make Triton's file lists name this copy: they contain absolute paths of the original cache.
    """
    old, new = f"{origin}/".encode(), f"{root}/".encode()
    for entry, _ in walk(root):
        if entry.name.startswith(_GROUP) and entry.is_file(follow_symlinks=False):
            path = Path(entry.path)
            data, status = path.read_bytes(), path.stat()
            if old in data:
                path.write_bytes(data.replace(old, new))
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
