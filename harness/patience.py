"""Calls that may never return, made in a thread that is left behind when they do not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Silent(Exception):
    """A call has not answered in time; `since` is when it was made, in seconds since the epoch."""

    def __init__(self, since: float) -> None:
        super().__init__(f"no answer since {time.strftime('%H:%M:%S', time.localtime(since))}")
        self.since = since


class Patience(Generic[T]):
    """Waits a bounded time for one call, and makes no second one while the first hangs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hanging: threading.Thread | None = None
        self._since = 0.0

    def call(self, work: Callable[[], T], timeout_s: float) -> T:
        """Return what `work` returns or raise what it raises; raises Silent after `timeout_s`."""
        answer: list[T] = []
        failure: list[BaseException] = []

        def run() -> None:
            try:
                answer.append(work())
            except BaseException as error:  # carried over to the caller's thread
                failure.append(error)

        with self._lock:
            if self._hanging is not None and self._hanging.is_alive():
                raise Silent(self._since)
            thread = threading.Thread(target=run, name="kopt-patience", daemon=True)
            self._hanging, self._since = thread, time.time()
            thread.start()
            thread.join(timeout_s)
            if thread.is_alive():
                raise Silent(self._since)
            self._hanging = None
        if failure:
            raise failure[0]
        return answer[0]
