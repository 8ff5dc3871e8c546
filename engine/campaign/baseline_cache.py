"""A campaign's compiler cache: what the baseline compiled, copied into the HOME of later runs.

The baseline's run fills it once; then it is read-only. Every slot and every verdict compiles in a
private HOME outside of the tree. That HOME starts as a copy of the cache; nothing is written back.
"""

from __future__ import annotations

from pathlib import Path

from engine.repository import worktree
from harness.compile import compiler_cache
from harness.verdict import Verdict

FOLDER = "jit"
BASELINE = "baseline"
"""Purpose of the request that fills the cache with what the request's incumbent compiled."""
COMPILED_LATE = ("triton", "python")
"""Languages whose kernels are compiled at their first call."""


def cache_folder(folder: Path) -> Path:
    """Return the cache's folder, in a campaign's folder."""
    return folder / FOLDER / "warm"


def warm_for(folder: Path, purpose: str) -> str:
    """Return the `Settings.warm_cache` of a request: the folder to copy from, "" for none."""
    cache = cache_folder(folder)
    return str(cache) if purpose != BASELINE and cache.is_dir() else ""


def keep_for(folder: Path, purpose: str) -> str:
    """Return the `Settings.keep_cache` of a command's request: the folder to fill, "" for none."""
    if purpose != BASELINE:
        return ""
    cache_folder(folder).parent.mkdir(exist_ok=True)
    return str(cache_folder(folder))


def seed(folder: Path, home: Path) -> int:
    """Copy the cache into a HOME that has no caches yet; return the number of files."""
    return compiler_cache.seed(cache_folder(folder), home)


def keep(folder: Path, home: Path) -> int:
    """Fill the cache from a baseline's HOME, unless it is filled; return the number of files."""
    cache_folder(folder).parent.mkdir(exist_ok=True)
    return compiler_cache.keep(home, cache_folder(folder))


def drop(folder: Path) -> bool:
    """Empty the cache; return False if it was empty.

    The empty folder that remains is never filled again.
    """
    cache = cache_folder(folder)
    if not cache.is_dir() or not any(cache.iterdir()):
        return False
    worktree.remove(cache)
    cache.mkdir()
    return True


def may_be_cold_timeout(verdict: Verdict, language: str) -> bool:
    """Return whether a verdict may have timed out because its kernel had to be compiled first."""
    return (language in COMPILED_LATE and not verdict.valid
            and "ran past its limit" in (verdict.rejected_reason or ""))
