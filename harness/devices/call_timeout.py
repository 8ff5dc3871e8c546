"""Bound the time of calls that may never return, such as those into a GPU driver.

A call runs in a thread of its own. A thread whose call hangs is abandoned, not stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class CallTimeout(Exception):
    """A call did not return in time; `since` is its start, in seconds since the epoch."""

    def __init__(self, since: float) -> None:
        super().__init__(f"no answer since {time.strftime('%H:%M:%S', time.localtime(since))}")
        self.since = since


class _Call(Generic[T]):
    """One call in its thread."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work, self._results, self._errors = work, list[T](), list[BaseException]()
        self.since, self._started = time.time(), time.monotonic()
        self._thread = threading.Thread(target=self._run, name="kopt-bounded-call", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:  # raised again in the caller's thread
            self._errors.append(error)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, timeout_s: float) -> None:
        """Wait for the end. Raises CallTimeout `timeout_s` after the start of the call."""
        self._thread.join(max(0.0, self._started + timeout_s - time.monotonic()))
        if self.is_running:
            raise CallTimeout(self.since)

    def result(self) -> T:
        if self._errors:
            raise self._errors[0]
        return self._results[0]


class BoundedCaller(Generic[T]):
    """Waits a bounded time for a call, and starts no second one while the first hangs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: _Call[T] | None = None

    def call(self, work: Callable[[], T], timeout_s: float) -> T:
        """Return or raise what `work` does. Raises CallTimeout after `timeout_s`."""
        return self.start(work, timeout_s)()

    def start(self, work: Callable[[], T], timeout_s: float) -> Callable[[], T]:
        """Start a call and return the function that waits for its result.

        Several calls overlap when all are started before the first wait. If another
        thread's call is running, that one is awaited and `work` is called after it: the running
        call may have read its values before this request.
        """
        first = self._start(work)

        def wait() -> T:
            call, is_own = first
            while not is_own:
                call.wait(timeout_s)
                call, is_own = self._start(work)
            call.wait(timeout_s)
            return call.result()

        return wait

    def _start(self, work: Callable[[], T]) -> tuple[_Call[T], bool]:
        """Return the running call, and whether it calls this `work`."""
        with self._lock:
            if self._last is not None and self._last.is_running:
                return self._last, False
            self._last = _Call(work)
            return self._last, True
