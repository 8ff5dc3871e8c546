"""Append to line files that several processes share; a killed process may leave a torn line."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

LONGEST = 1 << 20
"""A line longer than this many bytes is read in pieces; kopt writes none that long."""
LOCK_S = 2.0


def append(path: Path, text: bytes, *, head: bytes = b"", sync: bool = False) -> None:
    """Append whole lines, after `head` if the file is empty; first end a torn line.

    Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, 0o644)
    try:
        with contextlib.suppress(OSError):  # no locks on this file system: a single write suffices
            lock(fd, LOCK_S)
        size = os.fstat(fd).st_size
        if not size:
            text = head + text
        elif os.pread(fd, 1, size - 1) != b"\n":
            text = b"\n" + text
        if os.write(fd, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def read(path: Path, end: int | None = None) -> Iterator[bytes]:
    """Yield the lines that begin before the offset `end`; none without a file. Raises OSError."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        at = 0
        while (end is None or at < end) and (line := file.readline(LONGEST)):
            at += len(line)
            yield line.rstrip(b"\n")


def lock(fd: int, seconds: float) -> bool:
    """Lock a file; give up after some seconds. Return whether it is locked. Raises OSError."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.002)
    return False
