"""Create GPU contexts of runners before they are needed, in the order of `context_queue`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager

from harness.isolation.rpc import Peer
from harness.runners import context_queue

Work = Callable[[], None]


class ContextWarmup:
    """Submits the creation of contexts to threads, where each waits for its turn."""

    def __init__(self, submit: Callable[[Callable[[], None]], Future[None]]) -> None:
        self._submit = submit
        self._pending: dict[Peer, _PendingContext] = {}

    def begin(self, peer: Peer, work: Work, *, urgent: bool) -> None:
        """Create a runner's context by calling `work`: at once if `urgent`, else in its turn."""
        if peer not in self._pending:
            pending = self._pending[peer] = _PendingContext()
            turn = context_queue.urgent() if urgent else context_queue.patient(pending.needed)
            pending.done = self._submit(lambda: pending.run(work, turn))

    def claim(self, peers: Iterable[Peer]) -> list[Future[None] | None]:
        """Return for each runner the future to wait for before its use; None if none is pending."""
        claimed = [self._pending.pop(peer, None) for peer in peers]
        for pending in claimed:
            if pending is not None:
                pending.needed.set()  # for all of them, before the first wait
        return [None if pending is None else pending.done for pending in claimed]

    def finish(self) -> None:
        """Create all pending contexts now, and wait for them."""
        for pending in self._pending.values():
            pending.needed.set()
        wait([pending.done for pending in self._pending.values()])

    def drop(self, peer: Peer) -> None:
        """Cancel the context of a runner that is being ended, if its creation has not begun."""
        if (pending := self._pending.get(peer)) is not None:
            pending.cancelled = True
            pending.needed.set()

    def abandon(self, end: Work) -> None:
        """Cancel contexts not begun, call `end` to end all runners, and wait for contexts begun."""
        for pending in self._pending.values():
            pending.cancelled = True
        end()
        self.finish()
        self._pending.clear()


class _PendingContext:
    """A context that is being created, or waits for its turn until it is needed."""

    def __init__(self) -> None:
        self.needed = threading.Event()
        self.cancelled = False
        self.done: Future[None] = Future()

    def run(self, work: Work, turn: AbstractContextManager[None]) -> None:
        with turn:
            if not self.cancelled:
                work()
