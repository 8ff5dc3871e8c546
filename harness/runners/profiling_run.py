"""Compile and profile both sides during the check, class by class, in untimed processes.

Creating a context and attaching a profiler cost more than the profiling itself. All classes of a
side therefore share one process, which starts before there is anything to profile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

from harness.case import Case
from harness.errors import EnvironmentFault
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.runners import kernel_spans
from harness.runners.kernel_spans import CallProfile
from harness.runners.oracle_client import Oracle, OracleError
from harness.runners.slots.case_memory import CaseMemory

FINISH_S = 30.0


class ProfilingRun:
    """The profiling process of one side. Its failures are ignored, since the check finds them, too.

    `start` starts the process and `load` loads the kernel, raising PeerError or PeerDied; `store`
    receives the profile of each class.
    """

    def __init__(self, start: Callable[[], Peer], load: Callable[[Peer], None],
                 store: Callable[[Case, CallProfile], None]) -> None:
        self._start, self._load, self._store = start, load, store
        self._peer: Peer | None = None
        self._ended = False
        self._thread = ThreadPoolExecutor(1, "kopt-profiling")

    def begin(self) -> Future[None]:
        """Start the process and attach the profiler to it."""
        return self._thread.submit(self._attach)

    def add(self, case: Case, oracle: Oracle) -> Future[None]:
        """Compile and profile a case after the earlier ones."""
        return self._thread.submit(self._run, case, oracle)

    def _attach(self) -> None:
        if self._ended:
            return
        with self._ignoring_faults():
            kernel_spans.attach(self._peer or self._begin())

    def _run(self, case: Case, oracle: Oracle) -> None:
        if self._ended:
            return
        with self._ignoring_faults():
            memory = CaseMemory(oracle, self._peer or self._begin(), case)
            try:
                memory.place(case)
                memory.run()
                self._store(case, kernel_spans.profile(memory.peer, memory.id))
            finally:  # the check may need the memory
                memory.close()

    @contextlib.contextmanager
    def _ignoring_faults(self) -> Iterator[None]:
        with contextlib.suppress(PeerError, PeerDied, EnvironmentFault, OracleError):
            try:
                yield
            except (PeerDied, EnvironmentFault):  # a new process serves the next class
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
        """End the process without waiting."""
        self._ended = True
        if (peer := self._peer) is not None:
            peer.kill()

    def wait(self) -> list[Peer]:
        """Wait for all added cases; return their process, if it still runs, for the caller to end.
        """
        self._thread.shutdown()
        return [] if self._peer is None else [self._peer]


class ProfilingRuns:
    """The profiling runs of all sides, and their `profiles` by side and class."""

    def __init__(self) -> None:
        self.profiles: dict[tuple[str, str], CallProfile] = {}
        self._runs: dict[str, ProfilingRun] = {}
        self._pending: list[Future[None]] = []

    def add(self, side: str, case: Case, oracle: Oracle, start: Callable[[], Peer],
            load: Callable[[Peer], None]) -> None:
        """Compile and profile a case of a side; start the side's process if none runs."""
        if side not in self._runs:
            self._runs[side] = ProfilingRun(
                start, load, lambda case, profile: self.profiles.__setitem__(
                    (side, case.config_class), profile))
            self._pending.append(self._runs[side].begin())
        self._pending.append(self._runs[side].add(case, oracle))

    def finish(self) -> list[Peer]:
        """Wait for all profiles, at most FINISH_S; then end the runs that are not finished.

        Returns the processes that are left, for the caller to end.
        """
        if wait(self._pending, FINISH_S).not_done:
            self.end()
        peers = [peer for run in self._runs.values() for peer in run.wait()]
        self._runs.clear()
        self._pending.clear()
        return peers

    def end(self) -> None:
        """End all runs without waiting."""
        for run in self._runs.values():
            run.end()
