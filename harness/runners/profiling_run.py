"""What a side runs, seen beside its check: compiled class by class, and profiled, in a process that
is never timed.

A context, and a profiler that attaches to it, cost more than what is then seen: all classes share
one process, which begins before there is anything to be seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from harness.case import Case
from harness.errors import EnvironmentFault
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.runners import kernel_spans
from harness.runners.kernel_spans import CallProfile


class ProfilingRun:
    """One side's: `start` gives its process and `load` puts the kernel there, raising PeerError or
    PeerDied; `saw` is told what each class runs.

    Whether it works there is not asked: check and measurement will tell.
    """

    def __init__(self, start: Callable[[], Peer], load: Callable[[Peer], None],
                 saw: Callable[[Case, CallProfile], None]) -> None:
        self._start, self._load, self._saw = start, load, saw
        self._peer: Peer | None = None
        self._ended = False
        self._turns = ThreadPoolExecutor(1, "kopt-rehearsal")

    def begin(self) -> Future[None]:
        """Have its process made and the profiler attached to it."""
        return self._turns.submit(self._attach)

    def add(self, case: Case) -> Future[None]:
        """Have a case compiled and profiled, after those before it."""
        return self._turns.submit(self._run, case)

    def _attach(self) -> None:
        if self._ended:
            return
        with self._trying():
            kernel_spans.attach(self._peer or self._begin())

    def _run(self, case: Case) -> None:
        if self._ended:
            return
        with self._trying():
            peer = self._peer or self._begin()
            try:
                peer.ask("prepare", case=case.id, tensors=case.tensors, copies=1)
                self._saw(case, kernel_spans.profile(peer, case.id))
            finally:  # the check may need the memory
                peer.ask("drop", case=case.id)

    @contextlib.contextmanager
    def _trying(self) -> Iterator[None]:
        with contextlib.suppress(PeerError, PeerDied, EnvironmentFault):
            try:
                yield
            except (PeerDied, EnvironmentFault):  # the next class may fare better
                self._leave()
                raise

    def _begin(self) -> Peer:
        self._peer = peer = self._start()
        if self._ended:
            peer.kill()
        try:
            self._load(peer)
        except BaseException:
            self._leave()
            raise
        return peer

    def _leave(self) -> None:
        if self._peer is not None:
            self._peer.kill()
            self._peer.close()
            self._peer = None

    def end(self) -> None:
        """End what is under way; does not wait."""
        self._ended = True
        if (peer := self._peer) is not None:
            peer.kill()

    def wait(self) -> None:
        """Wait for all cases that were added; their process is gone then."""
        self._turns.shutdown()
        self._leave()
