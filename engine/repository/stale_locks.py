"""Locks and indices that killed git commands left in a campaign's clone."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

STALE_LOCK_S = 10.0
"""Age at which a lock's owner counts as killed: no command of ours holds a lock that long."""
STALE_INDEX_S = 3600.0


def clear(git_dir: Path) -> None:
    """Delete lock files once they are stale, waiting at most STALE_LOCK_S, and stale indices.

    Only the campaign's own engine may call this.
    """
    for index in (git_dir / "kopt").glob("index-*"):
        if time.time() - index.stat().st_mtime > STALE_INDEX_S:
            shutil.rmtree(index, ignore_errors=True)
    deadline = time.monotonic() + STALE_LOCK_S
    while locks := [path for path in git_dir.rglob("*.lock") if path.is_file()]:
        for lock in locks:
            if time.time() - lock.stat().st_mtime > STALE_LOCK_S:
                lock.unlink(missing_ok=True)
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
