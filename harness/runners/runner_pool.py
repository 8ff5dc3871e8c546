"""The runner processes of one evaluation or loop, some of them started before they are needed.

A GPU context takes most of a second, and importing torch and triton takes seconds where no zygote
has done it. Such processes are started ahead, each under its own guard; they get their kernel and
the device lock later.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from harness.case import Case
from harness.compile.kernel import Kernel
from harness.compile.place import Place
from harness.isolation.device_lock import DeviceLock
from harness.isolation.process_outcome import Limits, ProcessOutcome
from harness.isolation.rpc import Peer
from harness.runners.context_warmup import ContextWarmup
from harness.runners.kernel_spans import CallProfile
from harness.runners.oracle_client import Oracle
from harness.runners.profiling_run import ProfilingRuns
from harness.runners.shared_process import SharedProcess
from harness.runners.startup import (
    GpuUnreachable,
    RunnerStarter,
    await_ready,
    has_failed,
    load_woken,
    unreachable_fault,
)

CORES_PER_START = 3
MOST_AHEAD = 5
IDLE = 0.25
"""Largest share of its wall limit that a runner may have spent waiting."""
BYTES_PER_CONTEXT = 4 << 30


class RunnerPool:
    """Returns runners with a kernel loaded; at most `ahead` per side are started in advance.

    `unconfined` says why runners run outside namespaces, "" if they run inside. With
    `in_process`, all kernels that run at the same time share one process.
    """

    def __init__(self, limits: Limits, *, ahead: int = 0, in_process: bool = False) -> None:
        self.limits = limits
        self.ahead = 0 if in_process else ahead
        self.starter = RunnerStarter(limits, shared=in_process)
        self.unconfined = ""
        self._in_process = in_process
        self._shared: SharedProcess | None = None
        self._waiting: dict[str, deque[Peer]] = {}
        self._kernels: dict[str, Kernel] = {}
        self._helpers: ThreadPoolExecutor | None = None
        self._contexts = ContextWarmup(lambda work: self._executor().submit(work))
        self._ending: list[Future[ProcessOutcome]] = []
        self._profiling = ProfilingRuns()

    def prestart(self, kernel: Kernel, count: int, *, asleep: bool = False) -> None:
        """Start runners of a kernel until `count` of them wait, or `ahead` if that is less.

        With `asleep`, they do not touch the card before their context is created or they are used.
        """
        self._kernels[kernel.name] = kernel
        waiting = self._waiting.setdefault(kernel.name, deque())
        while len(waiting) < min(count, self.ahead):
            waiting.append(self.starter.start(kernel, None, asleep=asleep))

    def discard(self, kernel: Kernel) -> None:
        """End the waiting runners of a kernel that is not needed any more."""
        self.end(self._waiting.pop(kernel.name, ()))
        self._kernels.pop(kernel.name, None)

    def start(self, kernel: Kernel, *, lock: DeviceLock | None = None, refill: int = 0) -> Peer:
        """Return one runner with the kernel loaded; see `start_all`.

        What the runner compiles is kept for later runners, unless the kernel has been timed.
        """
        [peer] = self._start_reachable([kernel], lock, refill)
        self.starter.keep_compiled([peer])
        return peer

    def start_all(self, kernels: Sequence[Kernel], *, lock: DeviceLock | None = None,
                  refill: int = 0) -> list[Peer]:
        """Return a runner for each kernel, to be timed; prestart `refill` more of each.

        They load concurrently; what they compile is not kept. Raises PeerError or PeerDied if
        a kernel does not load, EnvironmentFault if the target's Python can run no runner,
        DeviceFault if a runner does not reach the card.
        """
        self.starter.freeze(kernels)
        return self._start_reachable(kernels, lock, refill)

    def _start_reachable(self, kernels: Sequence[Kernel], lock: DeviceLock | None,
                         refill: int) -> list[Peer]:
        try:
            return self._start_all(kernels, lock, refill)
        except GpuUnreachable as error:
            if not self.starter.confined:
                raise unreachable_fault(str(error), kernels[0].place) from None
            self.starter.confined = False  # the GPU may work outside namespaces
            self.unconfined = str(error)
            self.close()
        try:
            return self._start_all(kernels, lock, refill)
        except GpuUnreachable as error:
            raise unreachable_fault(str(error), kernels[0].place) from None

    def _start_all(self, kernels: Sequence[Kernel], lock: DeviceLock | None,
                   refill: int) -> list[Peer]:
        peers: list[Peer] = []
        unlocked: list[Peer] = []
        try:
            for kernel in kernels:
                if (waiting := self._take_waiting(kernel)) is not None:
                    peers.append(waiting)
                    unlocked.append(waiting)
                elif self._in_process:
                    peers.append(self._join_shared(kernel, lock))
                else:
                    peers.append(self.starter.start(kernel, lock))
                if refill:
                    self.prestart(kernel, refill)
            for index, warmup in enumerate(self._contexts.claim(peers)):
                peer, kernel = peers[index], kernels[index]
                if warmup is not None and has_failed(warmup):
                    self.end([peer])
                    peer = peers[index] = self.starter.start(kernel, lock)
                    warmup = None
                if warmup is None and not self._in_process:
                    self.starter.wake(peer, kernel)
                    await_ready(peer, kernel)
                    if lock is not None and peer in unlocked:
                        peer.hold(lock)
                self.starter.load(peer, kernel)
            for peer in peers:
                peer.receive()
        except BaseException:
            for peer in peers:
                peer.close()
            raise
        return peers

    def _take_waiting(self, kernel: Kernel) -> Peer | None:
        """Return a waiting runner or None; end those with too little of their wall limit left."""
        waiting = self._waiting.get(kernel.name, deque[Peer]())
        while waiting:
            peer = waiting.popleft()
            if self.starter.age_s(peer) < IDLE * self.limits.wall_s:
                return peer
            self.end([peer])
        return None

    def create_contexts(self, lock: DeviceLock, kernel: Kernel | None = None) -> None:
        """Create the waiting runners' contexts on the card, now that its lock is held.

        This happens during the check of the candidate, so that no measurement waits for it. With
        a `kernel`, only the context of its next runner is created, urgently: the driver creates
        one context after another, and the check waits for that one.
        """
        for name, peers in self._waiting.items():
            chosen = list(peers) if kernel is None else list(peers)[:name == kernel.name]
            for peer in chosen:
                self._contexts.begin(
                    peer, partial(self._create_context, peer, self._kernels[name], lock),
                    urgent=kernel is not None)

    def _create_context(self, peer: Peer, kernel: Kernel, lock: DeviceLock) -> None:
        self.starter.wake(peer, kernel)
        await_ready(peer, kernel)
        peer.hold(lock)
        peer.ask("context", device=kernel.place.device)

    def wait_contexts(self) -> None:
        """Wait until all contexts exist: nothing else may run during a measurement."""
        self._contexts.finish()

    def end_waiting(self) -> None:
        """End all waiting runners under the card's lock, so that none uses the card later."""
        self._profiling.end()
        self._contexts.abandon(self._end_waiting_runners)

    def _end_waiting_runners(self) -> None:
        for waiting in self._waiting.values():
            self.end(waiting)
            waiting.clear()

    def profile(self, kernel: Kernel, lock: DeviceLock, case: Case, oracle: Oracle) -> None:
        """Compile and profile a kernel for a case during the check, in a separate process."""
        self._profiling.add(kernel.name, case, oracle,
                            partial(self.starter.start, kernel, lock),
                            partial(load_woken, self.starter, kernel))

    @property
    def profiles(self) -> dict[tuple[str, str], CallProfile]:
        """The profiles by side and class."""
        return self._profiling.profiles

    def wait_profiles(self) -> None:
        """Wait for the profiles (see `ProfilingRuns.finish`), then end their processes."""
        self.end(self._profiling.finish())

    def end(self, peers: Iterable[Peer]) -> None:
        """End runners without waiting, because a process takes long to release a card.

        A shared process is waited for: the next one needs the card for itself.
        """
        for peer in peers:
            self.starter.forget(peer)
            self._contexts.drop(peer)
            if self._in_process:
                peer.close()
                continue
            peer.kill()
            self._ending.append(self._executor().submit(peer.close))

    def _executor(self) -> ThreadPoolExecutor:
        if self._helpers is None:
            self._helpers = ThreadPoolExecutor(2 * MOST_AHEAD, "kopt-runners")
        return self._helpers

    def _join_shared(self, kernel: Kernel, lock: DeviceLock | None) -> Peer:
        """Return a runner in the shared process, which is started if none runs."""
        if self._shared is None or not self._shared.runners:
            peer = self.starter.start(kernel, lock)
            try:
                await_ready(peer, kernel)
            except BaseException:
                peer.close()
                raise
            self._shared = SharedProcess(peer)
        return self._shared.join(kernel.name)

    def close(self) -> None:
        self.end_waiting()
        self.wait_profiles()
        for ending in self._ending:
            ending.result()
        self._ending.clear()
        self.starter.clear()
        if self._helpers is not None:
            self._helpers.shutdown()
            self._helpers = None

    def __enter__(self) -> RunnerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def starts_ahead(place: Place, language: str, memory_bytes: int | None) -> int:
    """Return how many runners of a kernel to start ahead: none where that would disturb timing.

    Each needs cores to start on, and a context in the card's memory.
    """
    if language == "c" or (place.device == "cpu" and not place.interpret):
        return 0
    cores = len(os.sched_getaffinity(0))
    fitting = MOST_AHEAD if memory_bytes is None else memory_bytes // BYTES_PER_CONTEXT
    return max(1, min(MOST_AHEAD, cores // CORES_PER_START, fitting))
