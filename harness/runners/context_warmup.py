"""Runners that make their contexts on a card ahead of when they are taken, as `contexts` has it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager

from harness.isolation.rpc import Peer
from harness.runners import context_queue

Work = Callable[[], None]


class ContextWarmup:
    """Hands the work of settling to `submit`, each runner's when its turn has come."""

    def __init__(self, submit: Callable[[Callable[[], None]], Future[None]]) -> None:
        self._submit = submit
        self._under_way: dict[Peer, _PendingContext] = {}

    def begin(self, peer: Peer, work: Work, *, at_once: bool) -> None:
        """Have a runner settle, in its turn or because somebody waits for it."""
        if peer not in self._under_way:
            one = self._under_way[peer] = _PendingContext()
            turn = context_queue.urgent() if at_once else context_queue.patient(one.wanted)
            one.done = self._submit(lambda: one.run(work, turn))

    def taken(self, peers: Iterable[Peer]) -> list[Future[None] | None]:
        """Return what to wait for before each runner is used, None where nothing is under way."""
        found = [self._under_way.pop(peer, None) for peer in peers]
        for one in found:
            if one is not None:
                one.wanted.set()  # all of them, before any is waited for
        return [None if one is None else one.done for one in found]

    def finish(self) -> None:
        """Have all settle now, and wait."""
        for one in self._under_way.values():
            one.wanted.set()
        wait([one.done for one in self._under_way.values()])

    def drop(self, peer: Peer) -> None:
        """Have a runner that is ended settle no more."""
        if (one := self._under_way.get(peer)) is not None:
            one.ended = True
            one.wanted.set()

    def abandon(self, end: Work) -> None:
        """Have none settle that has not begun, `end` all runners, and wait for those that have."""
        for one in self._under_way.values():
            one.ended = True
        end()
        self.finish()
        self._under_way.clear()


class _PendingContext:
    """A runner that settles, or waits for its turn to until it is wanted."""

    def __init__(self) -> None:
        self.wanted = threading.Event()
        self.ended = False
        self.done: Future[None] = Future()

    def run(self, work: Work, turn: AbstractContextManager[None]) -> None:
        with turn:
            if not self.ended:
                work()
