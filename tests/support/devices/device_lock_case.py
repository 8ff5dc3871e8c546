"""A program that measures under a device lock, and a check whether a lock file is held."""

from __future__ import annotations

import fcntl
import os

MEASURE = """
import sys, time
from pathlib import Path
from harness.isolation import device_lock as lock
log = Path(sys.argv[1])
log.with_name(sys.argv[2]).touch()
while not (log.with_name("a").exists() and log.with_name("b").exists()):
    time.sleep(0.001)
for _ in range(6):
    with lock.acquire("cpu"):
        with log.open("a") as f:
            f.write(f"{sys.argv[2]} {time.monotonic_ns()} ")
            time.sleep(0.05)
            f.write(f"{time.monotonic_ns()}\\n")
    time.sleep(0.01)
"""


def is_held(path: str | os.PathLike[str]) -> bool:
    """Return whether a process, which may be this one, holds the lock of a file."""
    with open(path, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
