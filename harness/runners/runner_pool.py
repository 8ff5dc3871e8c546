"""Runner processes of one evaluation or loop: every one fresh, some started before they are needed.

A context on a GPU takes a good part of a second, and an import of torch and triton some, where no
zygote has done it. Such processes are started ahead, each under its own guard, with nothing of the
candidate's in them; kernel and device lock come later.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

from harness.case import Case
from harness.compile import compiler_cache
from harness.compile.kernel import Kernel, Place
from harness.isolation.device_lock import DeviceLock, Turnstile
from harness.isolation.guard import Confine, Limits, ProcessOutcome, clean_env
from harness.isolation.rpc import Peer
from harness.isolation.zygote_client import Zygote
from harness.runners import context_queue
from harness.runners.context_warmup import ContextWarmup
from harness.runners.kernel_spans import CallProfile
from harness.runners.profiling_run import ProfilingRun
from harness.runners.shared_process import SharedProcess
from harness.runners.startup import GpuUnreachable, await_ready, has_failed, load, unreachable_fault

CORES_PER_START = 3
MOST_AHEAD = 5
REHEARSAL_S = 30.0
IDLE = 0.25
"""Of its time that a runner may have spent waiting."""
BYTES_PER_CONTEXT = 4 << 30


class RunnerPool:
    """Hands out runners with a kernel loaded; at most `ahead` a side start before their time.

    `unconfined` says why they run outside of namespaces, where a GPU does not work inside. With
    `in_process` all kernels that run at a time share one process.
    """

    def __init__(self, limits: Limits, *, ahead: int = 0, yields: Turnstile | None = None,
                 zygote: Zygote | None = None, in_process: bool = False,
                 cancel: threading.Event | None = None) -> None:
        self.limits = limits
        self.ahead = 0 if in_process else ahead
        self.one_queue = False
        """Whether runners have one queue to the card, as those may who use one stream alone."""
        self._in_process = in_process
        self._bench: SharedProcess | None = None
        self._yields = yields
        self._zygote, self._cancel = zygote, cancel
        self._confined = True
        self.unconfined = ""
        self._waiting: dict[str, deque[Peer]] = {}
        self._kernels: dict[str, Kernel] = {}
        self._helpers: ThreadPoolExecutor | None = None
        self._settling = ContextWarmup(lambda work: self._aside().submit(work))
        self._asleep: set[Peer] = set()
        self._opened: dict[Peer, float] = {}
        self._ending: list[Future[ProcessOutcome]] = []
        self._rehearsals: dict[str, ProfilingRun] = {}
        self._rehearsing: list[Future[None]] = []
        self.spans: dict[tuple[str, str], CallProfile] = {}
        """What was profiled, by side and class."""

    def expect(self, kernel: Kernel, count: int, *, asleep: bool = False) -> None:
        """Have up to `count` runners of a side starting, as far as this starts any ahead.

        What is `asleep` does not touch the card until it settles or is taken.
        """
        self._kernels[kernel.name] = kernel
        waiting = self._waiting.setdefault(kernel.name, deque())
        while len(waiting) < min(count, self.ahead):
            waiting.append(self._open(kernel, None, self._yields, asleep=asleep))

    def forget(self, kernel: Kernel) -> None:
        """End what waits for a kernel that will not be run again."""
        self.end(self._waiting.pop(kernel.name, ()))
        self._kernels.pop(kernel.name, None)

    def start(self, kernel: Kernel, *, lock: DeviceLock | None = None,
              yields: Turnstile | None = None, refill: int = 0) -> Peer:
        """Return one runner with the kernel loaded; see `start_all`."""
        return self.start_all([kernel], lock=lock, yields=yields, refill=refill)[0]

    def start_all(self, kernels: Sequence[Kernel], *, lock: DeviceLock | None = None,
                  yields: Turnstile | None = None, refill: int = 0) -> list[Peer]:
        """Return a runner for each kernel, loaded side by side; have `refill` more ready.

        Raises PeerError or PeerDied when a kernel does not load, EnvironmentFault when the
        target's interpreter cannot run any, DeviceFault when it does not reach the card.
        """
        try:
            return self._start_all(kernels, lock, yields, refill)
        except GpuUnreachable as lost:
            if not self._confined:
                raise unreachable_fault(str(lost), kernels[0].place) from None
            self._confined = False  # a GPU that works only outside of namespaces
            self.unconfined = str(lost)
            self.close()
        try:
            return self._start_all(kernels, lock, yields, refill)
        except GpuUnreachable as lost:
            raise unreachable_fault(str(lost), kernels[0].place) from None

    def _start_all(self, kernels: Sequence[Kernel], lock: DeviceLock | None,
                   yields: Turnstile | None, refill: int) -> list[Peer]:
        peers: list[Peer] = []
        unlocked: list[Peer] = []
        try:
            for kernel in kernels:
                if (waited := self._waited(kernel)) is not None:
                    peers.append(waited)
                    unlocked.append(waited)
                elif self._in_process:
                    peers.append(self._seat(kernel, lock, yields))
                else:
                    peers.append(self._open(kernel, lock, yields))
                if refill:
                    self.expect(kernel, refill)
            for place, settled in enumerate(self._settling.taken(peers)):
                peer, kernel = peers[place], kernels[place]
                if settled is not None and has_failed(settled):
                    self.end([peer])
                    peer = peers[place] = self._open(kernel, lock, yields)
                    settled = None
                if settled is None and not self._in_process:
                    self._wake(peer, kernel)
                    await_ready(peer, kernel)
                    if lock is not None and peer in unlocked:
                        peer.hold(lock)
                peer.send("load", **kernel.job())
            for peer in peers:
                peer.receive()
        except BaseException:
            for peer in peers:
                peer.close()
            raise
        return peers

    def _waited(self, kernel: Kernel) -> Peer | None:
        """Take a runner that waits, None without one; who has waited for long has too little left
        of its own time.
        """
        waiting = self._waiting.get(kernel.name, deque[Peer]())
        while waiting:
            peer = waiting.popleft()
            if time.monotonic() - self._opened[peer] < IDLE * self.limits.wall_s:
                return peer
            self.end([peer])
        return None

    def settle(self, lock: DeviceLock, kernel: Kernel | None = None) -> None:
        """Have waiting runners make their contexts on the card, now that its lock is held.

        It is done beside the check of the candidate, so that no measurement waits for it. With a
        `kernel` only its next runner does: contexts are made one after another, and the check
        waits for that one.
        """
        for name, peers in self._waiting.items():
            chosen = list(peers) if kernel is None else list(peers)[:name == kernel.name]
            for peer in chosen:
                self._settling.begin(peer, partial(self._settle, peer, self._kernels[name], lock),
                                     at_once=kernel is not None)

    def _settle(self, peer: Peer, kernel: Kernel, lock: DeviceLock) -> None:
        self._wake(peer, kernel)
        await_ready(peer, kernel)
        peer.hold(lock)
        peer.ask("context", device=kernel.place.device)

    def settled(self) -> None:
        """Have all that settle do it now, and wait: nothing else may run while something is timed.
        """
        self._settling.finish()

    def abandon(self) -> None:
        """End all that waits, while the card's lock is held: none may come to the card later."""
        self._end_rehearsals()
        self._settling.abandon(self._end_waiting)

    def _end_waiting(self) -> None:
        for waiting in self._waiting.values():
            self.end(waiting)
            waiting.clear()

    def rehearse(self, kernel: Kernel, lock: DeviceLock, case: Case) -> None:
        """Have a kernel compiled for a case and profiled beside the check, in a process for that.
        """
        if kernel.name not in self._rehearsals:
            self._rehearsals[kernel.name] = ProfilingRun(
                partial(self._open, kernel, lock, None), partial(load, kernel),
                lambda case, seen: self.spans.__setitem__((kernel.name, case.config_class), seen))
            self._rehearsing.append(self._rehearsals[kernel.name].begin())
        self._rehearsing.append(self._rehearsals[kernel.name].add(case))

    def rehearsed(self) -> None:
        """Wait for every rehearsal, or end it: nothing else may run while something is timed."""
        if wait(self._rehearsing, REHEARSAL_S).not_done:
            self._end_rehearsals()
        for rehearsal in self._rehearsals.values():
            rehearsal.wait()
        self._rehearsals.clear()
        self._rehearsing.clear()

    def _end_rehearsals(self) -> None:
        for rehearsal in self._rehearsals.values():
            rehearsal.end()

    def end(self, peers: Iterable[Peer]) -> None:
        """End runners without waiting: a process takes long to give up a card.

        Where the next one needs the card for itself, it is waited for.
        """
        for peer in peers:
            self._asleep.discard(peer)
            self._settling.drop(peer)
            if self._in_process:
                peer.close()
                continue
            peer.kill()
            self._ending.append(self._aside().submit(peer.close))

    def _aside(self) -> ThreadPoolExecutor:
        if self._helpers is None:
            self._helpers = ThreadPoolExecutor(2 * MOST_AHEAD, "kopt-runners")
        return self._helpers

    def _seat(self, kernel: Kernel, lock: DeviceLock | None, yields: Turnstile | None) -> Peer:
        """Return a seat in the process that runs already, or in a new one."""
        if self._bench is None or not self._bench.taken:
            peer = self._open(kernel, lock, yields)
            try:
                await_ready(peer, kernel)
            except BaseException:
                peer.close()
                raise
            self._bench = SharedProcess(peer)
        return self._bench.seat(kernel.name)

    def _open(self, kernel: Kernel, lock: DeviceLock | None, yields: Turnstile | None, *,
              asleep: bool = False) -> Peer:
        place, bare = kernel.place, kernel.target.language == "c"
        home = kernel.home
        home.mkdir(parents=True, exist_ok=True)
        given = {**(context_queue.ONE_QUEUE if self.one_queue else {}), **place.env}
        env = clean_env(
            compiler_cache.private({**given, "TRITON_HOME": str(home)}, home), home=home
        )
        if place.interpret:
            env["TRITON_INTERPRET"] = "1"
        io = Path(place.scratch) / "io" / "out"  # the inputs beside it are not to be changed
        io.mkdir(parents=True, exist_ok=True)
        peer = Peer("run.runner", cwd=home, limits=self.limits, env=env, lock=lock, yields=yields,
                    bare=bare, python=None if bare else place.python, zygote=self._zygote,
                    cancel=self._cancel, name="" if self._in_process else kernel.name,
                    confine=Confine(writable=(str(home), str(io)), nodes=place.nodes)
                    if self._confined else None)
        self._opened[peer] = time.monotonic()
        self._asleep.add(peer)
        if not asleep:
            self._wake(peer, kernel)
        return peer

    def _wake(self, peer: Peer, kernel: Kernel) -> None:
        """Have a runner import what it needs and find the card, unless it was told to already."""
        if peer in self._asleep:
            self._asleep.discard(peer)
            if kernel.target.language != "c":
                peer.send("ready", language=kernel.target.language, device=kernel.place.device,
                          interpret=kernel.place.interpret)

    def close(self) -> None:
        self.abandon()
        self.rehearsed()
        for ending in self._ending:
            ending.result()
        self._ending.clear()
        self._asleep.clear()
        self._opened.clear()
        if self._helpers is not None:
            self._helpers.shutdown()
            self._helpers = None

    def __enter__(self) -> RunnerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def starts_ahead(place: Place, language: str, memory_bytes: int | None) -> int:
    """Return how many runners of a side to keep starting: none where that would disturb timing.

    Each needs cores to start on, and a context in the card's memory.
    """
    if language == "c" or (place.device == "cpu" and not place.interpret):
        return 0
    cores = len(os.sched_getaffinity(0))
    fitting = MOST_AHEAD if memory_bytes is None else memory_bytes // BYTES_PER_CONTEXT
    return max(1, min(MOST_AHEAD, cores // CORES_PER_START, fitting))
