"""Stops a yielding program while another process measures on the shared device.

The counterpart of `harness/isolation/device_lock.py`. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time

from .descendants import descendants, signal_all

STILL = "DTtZX"
"""States in which a process that received SIGSTOP uses no CPU time."""


class YieldGate:
    """Stops the program while another process measures on its device.

    A measuring process holds the file `turn` exclusively and waits until no process holds
    `active`. A yielding program holds `active` shared while it runs.
    """

    def __init__(self, paths: list[str] | None) -> None:
        self.files = [os.open(path, os.O_RDWR | os.O_CLOEXEC) for path in paths or []]
        self.stopped_since: float | None = None
        self.stopped_s = 0.0
        self._holds = False
        """Whether this process holds `active`."""
        self._signalled = False
        self.exempt = False
        """Whether the program's owner is measuring itself, and lets the program run meanwhile."""

    def enter(self) -> bool:
        """Try to become active; False while another process measures."""
        if not self.files:
            return True
        turn, active = self.files
        if not _try_lock(turn, fcntl.LOCK_SH):
            return False
        self._holds = _try_lock(active, fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        return self._holds

    def tick(self) -> None:
        if not self.files:
            return
        turn, active = self.files
        if self.exempt:  # its owner's measurement had stopped it; now it runs without `active`
            self._resume()
            self._holds = False
        elif self.stopped_since is not None or not self._holds:
            if self.enter():
                self._resume()
            elif self.stopped_since is None:
                self._stop()
        elif _try_lock(turn, fcntl.LOCK_SH):
            self._resume()
            fcntl.flock(turn, fcntl.LOCK_UN)
        elif self._stop():
            fcntl.flock(active, fcntl.LOCK_UN)
            self._holds = False

    def _resume(self) -> None:
        """Continue all stopped descendants, also after a failed attempt to stop them."""
        self.stopped_s = self.total_stopped_s()
        self.stopped_since = None
        if self._signalled:
            signal_all(signal.SIGCONT)
            self._signalled = False

    def _stop(self) -> bool:
        """Stop all descendants; return False if some still run, so that the caller tries again.

        An uninterruptible wait (D) counts as stopped: the signal arrives before the process runs
        again, and the parent of a vfork is in this state while its child is stopped.
        """
        self._signalled = True
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
