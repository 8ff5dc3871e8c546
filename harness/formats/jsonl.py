"""Files of lines that several processes add to, and that one may leave a torn line in."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

LONGEST = 1 << 20
"""Bytes of a line beyond which it is read in pieces: no line of ours is that long."""
LOCK_S = 2.0


def append(path: Path, text: bytes, *, head: bytes = b"", sync: bool = False) -> None:
    """Add whole lines to a file, behind `head` where it is empty; torn ones are ended first.

    Raises OSError when not all of it could be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, 0o644)
    try:
        _lock_briefly(fd)
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
    """Yield the lines of a file, those that begin before the offset `end`; none if there is none.

    Raises OSError for what cannot be read.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        at = 0
        while (end is None or at < end) and (line := file.readline(LONGEST)):
            at += len(line)
            yield line.rstrip(b"\n")


def _lock_briefly(fd: int) -> None:
    """Keep others from writing at the same time; whoever holds on to the lock is not waited for."""
    until = time.monotonic() + LOCK_S
    with contextlib.suppress(OSError):  # a file system without locks: one write is one line anyway
        while time.monotonic() < until:
            try:
                return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.002)
