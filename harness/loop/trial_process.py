"""Processes that each run many configurations of one source, one after the other, for a sweep.

A context on a card takes longer than a configuration's first blocks, and contexts are made one
after another. The configurations of a source are one candidate, whoever wrote it: a lane is forked
for it, and its configurations share what a process has, as kernels on a seat do. What a sweep finds
is a proposal; a verdict on it is measured in processes of its own.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.case import Case
from harness.compile.kernel import Kernel
from harness.compile.precompile import Ahead
from harness.errors import EnvironmentFault
from harness.isolation.device_lock import DeviceLock
from harness.isolation.guard import Limits
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.runners.runner_pool import RunnerPool
from harness.runners.session import Session
from harness.runners.shared_process import SharedRunner
from harness.search.space.space import Config
from harness.search.trials.trials import Correctness
from harness.timing import stats
from harness.timing.plan import Plan
from harness.timing.quick_timing import QuickTimer

MOST_SHARING = 100
"""Kernels that a process has loaded at most."""
MEMORY_SHARE = 4
"""All lanes' buffers may take one part in so many of a card's memory."""


@dataclass(kw_only=True)
class Entry:
    """One configuration of a sweep, and what is known of it so far."""

    number: int
    config: Config
    key: str = ""
    tree: Path | None = None
    lane: Lane | None = None
    correctness: Correctness | None = None
    reason: str = ""
    first_us: float | None = None
    blocks_us: list[float] = field(default_factory=list)
    kernel: Kernel | None = None
    peer: Peer | None = None
    solos: list[QuickTimer] = field(default_factory=list)
    generation: int = -1

    def fail(self, correctness: Correctness, reason: str) -> None:
        self.correctness, self.reason = correctness, reason


class Lane:
    """One such process, begun anew when a kernel has broken it or its memory is full.

    Not for two threads at a time.
    """

    def __init__(self, stage: Session, name: str, ahead: Ahead | None, cases: Sequence[Case],
                 plan: Plan, limits: Limits, held: DeviceLock | None, lanes: int) -> None:
        self.stage, self.name, self.ahead, self.cases = stage, name, ahead, cases
        self.plan = plan
        self.held = held
        self.runners = RunnerPool(limits, zygote=stage.zygote, in_process=True, cancel=stage.cancel)
        self.generation = 0
        self._open: list[Peer] = []
        bytes_each = max(1, sum(case.footprint for case in cases))
        self.shares = not stage.target.returns and all(
            arg.kind in ("input", "output", "scalar") for arg in stage.target.args)
        """Whether the buffers of one entry serve the others, which call for the same contents."""
        self._most = MOST_SHARING if self.shares else max(
            2, (stage.device.memory_bytes or 16 << 30) // MEMORY_SHARE // lanes // bytes_each)

    def begin(self, entry: Entry) -> None:
        """Load an entry's kernel here, with what was compiled, and have its buffers made; those of
        the first here serve all, unless they write to their inputs.

        Raises PeerError and PeerDied when it fails.
        """
        if len(self._open) >= self._most:
            self.restart()
        assert entry.tree is not None
        entry.lane, entry.generation = self, self.generation
        entry.kernel = self.stage.make(entry.tree, self.name)
        if self.ahead is not None:
            self.ahead.give(entry.key, entry.kernel)
        entry.peer = self.runners.start(entry.kernel, lock=self.held)
        like = getattr(self._open[0], "side", "") if self._open and self.shares else ""
        self._open.append(entry.peer)
        entry.solos = [QuickTimer(entry.peer, case, self.plan) for case in self.cases]
        try:
            for solo in entry.solos:
                solo.prepare(like)
        except PeerError:  # nobody is to be given its buffers
            with contextlib.suppress(PeerError, PeerDied):
                self.leave(entry)
            raise

    def warm(self, entry: Entry) -> None:
        for solo in entry.solos:
            solo.warm()

    def again(self, entry: Entry) -> None:
        """Have an entry ready to be timed, also where its process was begun anew."""
        if entry.generation != self.generation:
            self.begin(entry)
            self.warm(entry)

    def block(self, entry: Entry) -> float:
        """Time a block of every class; returns the mean nanoseconds of a call."""
        values = [math.log(solo.block()) for solo in entry.solos]
        ns = math.exp(stats.weighted_mean(values, [self.stage.target.config_class(
            case.config_class).weight for case in self.cases]))
        entry.blocks_us.append(ns / 1e3)
        return ns

    def leave(self, entry: Entry) -> None:
        """Have an entry's process forget it, if it is there still."""
        peer = entry.peer
        if (entry.generation == self.generation and isinstance(peer, SharedRunner)
                and peer in self._open):
            self._open.remove(peer)
            peer.vacate()

    def broken(self, entry: Entry, error: PeerError | PeerDied | EnvironmentFault) -> None:
        """Note that an entry failed; begin anew unless the process can still reach the card."""
        entry.fail("FAIL", error.what)
        with contextlib.suppress(PeerError, PeerDied):
            if entry.peer is not None and isinstance(error, PeerError):
                entry.peer.ask("context", device=self.stage.place.device)
                self.leave(entry)
                return
        self.restart()

    def restart(self) -> None:
        """Leave the process; the next entry begins another one."""
        self.generation += 1
        for peer in self._open:
            peer.kill()
        self._open.clear()

    def close(self) -> None:
        self.restart()
        self.runners.close()
