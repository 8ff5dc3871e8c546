"""Bound the time of calls that may never return, such as those into a GPU driver.

A call runs in a thread of its own. A thread whose call hangs is abandoned, not stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
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
        self.since, self._started = time.time(), time.monotonic()
        self.outcome: Future[T] = Future()
        threading.Thread(target=self._run, args=(work,), name="kopt-bounded-call",
                         daemon=True).start()

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self.outcome.set_result(work())
        except BaseException as error:  # raised again in the caller's thread
            self.outcome.set_exception(error)

    def wait(self, timeout_s: float) -> None:
        """Wait for the end. Raises CallTimeout `timeout_s` after the start of the call."""
        wait([self.outcome], max(0.0, self._started + timeout_s - time.monotonic()))
        if not self.outcome.done():
            raise CallTimeout(self.since)


class BoundedCaller(Generic[T]):
    """Waits a bounded time for a call, and starts no second one while the first hangs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: _Call[T] | None = None

    def start(self, work: Callable[[], T], timeout_s: float) -> Callable[[], T]:
        """Start a call and return the function that waits for its result, or raises CallTimeout.

        Several calls overlap when all are started before the first wait. If another thread's call
        is running, that one is awaited and `work` is called after it: the running call may have
        read its values before this request.
        """
        first = self._start(work)

        def result() -> T:
            call, is_own = first
            while not is_own:
                call.wait(timeout_s)
                call, is_own = self._start(work)
            call.wait(timeout_s)
            return call.outcome.result()

        return result

    def _start(self, work: Callable[[], T]) -> tuple[_Call[T], bool]:
        """Return the running call, and whether it calls this `work`."""
        with self._lock:
            if self._last is not None and not self._last.outcome.done():
                return self._last, False
            self._last = _Call(work)
            return self._last, True
