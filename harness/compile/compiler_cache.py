"""Compilers' caches: one for each place that runs a candidate, outside its tree, seeded with a copy
of the baseline's.

A cache that two candidates share lets one of them run what the other compiled; one that starts
empty compiles for minutes what nobody has changed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from harness.formats.file_copy import CopyResult, FolderTooLarge, copy_folder, remove, walk

FOLDER = "jit"
"""Below a private HOME."""
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
"""Where compilers are told to keep what they made, by folder below ours."""
TRITON = (FOLDER, VARIABLES["TRITON_CACHE_DIR"])
"""The way to Triton's, below a HOME."""
MOST_BYTES = 8 << 30
ORIGIN = ".kopt-origin"
"""Names the place that a kept cache was made in, which some of its files repeat."""
_GROUP = "__grp__"


def environment(home: Path) -> dict[str, str]:
    """Return the variables that keep every compiler's cache in a private HOME."""
    root = home / FOLDER
    return {name: str(root / part) if part else str(root) for name, part in VARIABLES.items()}


def private(env: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return an environment in which no cache is shared, whatever it said of them."""
    return {**env, **environment(home)}


def seed(warm: Path, home: Path) -> CopyResult:
    """Copy a kept cache into a HOME; nothing where there is none or it holds too much.

    What is written there later, in place or not, changes neither the kept one nor another's.
    """
    root = home / FOLDER
    if not warm.is_dir() or root.exists():
        return CopyResult()
    try:
        copied = copy_folder(warm, root, most_bytes=MOST_BYTES, wanted=lambda name: name != ORIGIN)
    except (FolderTooLarge, OSError):  # what needs the disk reports that it is full
        return CopyResult()
    with contextlib.suppress(OSError):
        _relocate(root, (warm / ORIGIN).read_text())
    return copied


def keep(home: Path, warm: Path) -> CopyResult:
    """Keep a HOME's caches as the one that others are seeded with, read-only, once for all."""
    root = home / FOLDER
    if not root.is_dir() or warm.exists() or not any(root.iterdir()):
        return CopyResult()
    unfinished = warm.with_name(f"{warm.name}.new")
    remove(unfinished)
    try:
        copied = copy_folder(root, unfinished, most_bytes=MOST_BYTES,
                             wanted=lambda name: not name.endswith(".lock"))
    except (FolderTooLarge, OSError):
        return CopyResult()
    (unfinished / ORIGIN).write_text(str(root))
    for entry, _ in walk(unfinished):
        if entry.is_file(follow_symlinks=False):
            os.chmod(entry.path, 0o444)
    os.rename(unfinished, warm)
    return copied


def _relocate(root: Path, origin: str) -> None:
    """Have Triton's lists of files name this copy's: they hold whole paths, and the first cache's
    files would be read instead.
    """
    old, new = f"{origin}/".encode(), f"{root}/".encode()
    for entry, _ in walk(root):
        if entry.name.startswith(_GROUP) and entry.is_file(follow_symlinks=False):
            path = Path(entry.path)
            data, found = path.read_bytes(), path.stat()
            if old in data:
                path.write_bytes(data.replace(old, new))
                os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
