"""Calls that may never return, made in a thread that is left behind when they do not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class CallTimeout(Exception):
    """A call has not answered in time; `since` is when it was made, in seconds since the epoch."""

    def __init__(self, since: float) -> None:
        super().__init__(f"no answer since {time.strftime('%H:%M:%S', time.localtime(since))}")
        self.since = since


class _Call(Generic[T]):
    """One call, in its thread."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work, self._answer, self._failure = work, list[T](), list[BaseException]()
        self.since, self._began = time.time(), time.monotonic()
        self._thread = threading.Thread(target=self._run, name="kopt-patience", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer.append(self._work())
        except BaseException as error:  # carried over to the caller's thread
            self._failure.append(error)

    @property
    def under_way(self) -> bool:
        return self._thread.is_alive()

    def end(self, timeout_s: float) -> None:
        """Wait until it has ended; raises Silent when it takes longer than `timeout_s` in all."""
        self._thread.join(max(0.0, self._began + timeout_s - time.monotonic()))
        if self.under_way:
            raise CallTimeout(self.since)

    def answer(self) -> T:
        if self._failure:
            raise self._failure[0]
        return self._answer[0]


class BoundedCaller(Generic[T]):
    """Waits a bounded time for one call, and makes no second one while the first hangs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: _Call[T] | None = None

    def call(self, work: Callable[[], T], timeout_s: float) -> T:
        """Return what `work` returns or raise what it raises; raises Silent after `timeout_s`."""
        return self.ask(work, timeout_s)()

    def ask(self, work: Callable[[], T], timeout_s: float) -> Callable[[], T]:
        """Begin a call and return what waits for its end, so that several can be under way.

        Where somebody else's call is, the wait is for that one first: its answer may be older
        than the question.
        """
        begun = self._begin(work)

        def wait() -> T:
            call, mine = begun
            while not mine:
                call.end(timeout_s)
                call, mine = self._begin(work)
            call.end(timeout_s)
            return call.answer()

        return wait

    def _begin(self, work: Callable[[], T]) -> tuple[_Call[T], bool]:
        """Return the call that is under way, and whether it is this one."""
        with self._lock:
            if self._last is not None and self._last.under_way:
                return self._last, False
            self._last = _Call(work)
            return self._last, True
