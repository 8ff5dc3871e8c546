"""A campaign's kept cache of compilers: what the baseline compiled, for others to start with.

It is made once, of the baseline's own run, and read-only. Every slot and every verdict has caches
of its own in a private HOME outside of the tree, seeded with a copy; nothing is ever written back.
"""

from __future__ import annotations

from pathlib import Path

from engine.repository import worktree
from harness.compile import compiler_cache
from harness.formats.file_copy import CopyResult
from harness.verdict import Verdict

FOLDER = "jit"
BASELINE = "baseline"
"""The purpose of the job whose incumbent's caches are kept."""
COMPILED_LATE = ("triton", "python")
"""Languages whose kernels are compiled when they are first called."""


def kept(folder: Path) -> Path:
    """Return where a campaign's folder has the kept cache, if it has one."""
    return folder / FOLDER / "warm"


def warm_for(folder: Path, purpose: str) -> str:
    """Return what a job of some purpose starts with: `Settings.warm_cache`."""
    return str(kept(folder)) if purpose != BASELINE and kept(folder).is_dir() else ""


def keep_for(folder: Path, purpose: str) -> str:
    """Return where a command's job is to keep what it compiled: `Settings.keep_cache`."""
    if purpose != BASELINE:
        return ""
    kept(folder).parent.mkdir(exist_ok=True)
    return str(kept(folder))


def seed(folder: Path, home: Path) -> CopyResult:
    """Start a HOME's caches with a copy of the kept one, unless it has some already."""
    return compiler_cache.seed(kept(folder), home)


def keep(folder: Path, home: Path) -> CopyResult:
    """Keep what a kernel's baseline has compiled in its HOME, if nothing is kept yet."""
    kept(folder).parent.mkdir(exist_ok=True)
    return compiler_cache.keep(home, kept(folder))


def drop(folder: Path) -> bool:
    """Give the kept cache up, for good: an empty one stays in its place. Tells if there was one."""
    warm = kept(folder)
    if not warm.is_dir() or not any(warm.iterdir()):
        return False
    worktree.remove(warm)
    warm.mkdir()
    return True


def cold_timeout(verdict: Verdict, language: str) -> bool:
    """Tell whether a kernel may have run out of time while it was compiled for the first time.

    What it compiled lies in its HOME still: the same job is worth a second try, and no third.
    """
    return (language in COMPILED_LATE and not verdict.valid
            and "ran past its limit" in (verdict.rejected_reason or ""))
