"""Making way for a measurement: a program that yields is stopped while the device is taken.

The other side of `harness/isolation/device_lock.py`. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time

from .family import descendants, signal_all

STILL = "DTtZX"
"""States in which a process that was sent SIGSTOP uses no processor."""


class YieldGate:
    """Keeps the program stopped while somebody measures on the device it shares.

    A measurer holds `turn` exclusively and waits until nobody holds `active`; a program that
    yields holds `active` shared while it runs.
    """

    def __init__(self, paths: list[str] | None) -> None:
        self.files = [os.open(path, os.O_RDWR | os.O_CLOEXEC) for path in paths or []]
        self.stopped_since: float | None = None
        self.stopped_s = 0.0

    def enter(self) -> bool:
        """Try to become active; False while a measurer has the turn."""
        if not self.files:
            return True
        turn, active = self.files
        if not _try_lock(turn, fcntl.LOCK_SH):
            return False
        entered = _try_lock(active, fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        return entered

    def tick(self) -> None:
        if not self.files:
            return
        turn, active = self.files
        if self.stopped_since is None:
            if _try_lock(turn, fcntl.LOCK_SH):
                fcntl.flock(turn, fcntl.LOCK_UN)
                return
            if self._stop():
                fcntl.flock(active, fcntl.LOCK_UN)
        elif self.enter():
            self.stopped_s += time.monotonic() - self.stopped_since
            self.stopped_since = None
            signal_all(signal.SIGCONT)

    def _stop(self) -> bool:
        """Stop everything; what cannot be stopped now stays active and is tried again.

        An uninterruptible wait (D) counts as stopped: the signal is delivered before the process
        runs again, and the parent of a vfork waits like that for a child which we have stopped.
        """
        for _ in range(20):  # a fork can slip between the listing and the signal
            signal_all(signal.SIGSTOP)
            if all(state in STILL for state in descendants().values()):
                self.stopped_since = time.monotonic()
                return True
        return False

    def total_stopped_s(self) -> float:
        if self.stopped_since is None:
            return self.stopped_s
        return self.stopped_s + time.monotonic() - self.stopped_since


def _try_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
