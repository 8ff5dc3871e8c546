"""Reports which measurement of another process a yielding job waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness.isolation import device_lock
from harness.isolation.device_lock import Turnstile

POLL_S = 0.5
"""Seconds between two polls."""


class WaitReporter:
    """Calls `on_wait` with what two polls in a row find, and with "" when the job continues."""

    def __init__(self, turnstile: Turnstile, on_wait: Callable[[str], None]) -> None:
        self._turnstile, self._on_wait = turnstile, on_wait
        self._obstacle = self._reported = ""

    def poll(self) -> None:
        """Poll once, and report a change."""
        obstacle = device_lock.shared_wait(self._turnstile, int(time.monotonic() / POLL_S))
        lasting, self._obstacle = obstacle if obstacle == self._obstacle else "", obstacle
        if lasting != self._reported:
            self._reported = lasting
            self._on_wait(lasting)


@contextmanager
def watched(turnstile: Turnstile, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Report waits from a separate thread within the `with` block."""
    ended, reporter = threading.Event(), WaitReporter(turnstile, on_wait)

    def watch() -> None:
        while not ended.wait(POLL_S):
            reporter.poll()

    thread = threading.Thread(target=watch, name="turn-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
