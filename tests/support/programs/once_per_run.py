"""Values that all workers of a test run share: the first one computes, the others read its file."""

from __future__ import annotations

import fcntl
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

FOLDER = "KOPT_TEST_SHARED"
"""The variable that names the run's folder, which pytest deletes."""


def value(name: str, compute: Callable[[], T]) -> T:
    """Return a value that is the same for all tests; `compute` is costly and runs once."""
    folder = Path(os.environ.get(FOLDER) or tempfile.mkdtemp(prefix="kopt-shared-"))
    path = folder / f"{name}.pickle"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            found: T = pickle.loads(path.read_bytes())
            return found
        computed = compute()
        path.write_bytes(pickle.dumps(computed))
        return computed
