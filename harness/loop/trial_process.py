"""One process on a card that runs many configurations of one source, one after the other.

Creating a context takes longer than a configuration's first blocks. Configurations of one source
count as one candidate, so they may share a process; a verdict is measured in separate ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.case import Case
from harness.compile.c_compiler import BuildError
from harness.compile.kernel import Kernel
from harness.compile.precompile import Precompiler
from harness.errors import DeviceFault, IncumbentFault, KoptError
from harness.isolation.device_lock import DeviceLock
from harness.isolation.process_outcome import Limits
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.loop.quick_timing import QuickTimer
from harness.runners.oracle_client import Oracle
from harness.runners.runner_pool import RunnerPool
from harness.runners.session import Session
from harness.runners.shared_process import SharedRunner
from harness.timing.plan import Plan
from harness.timing.timed_block import TamperedTiming

MOST_SHARING = 100
"""Most kernels that one process may have loaded if they share buffers."""
MEMORY_SHARE = 4
"""Buffers that are not shared may take 1 / MEMORY_SHARE of a card's memory."""
FAILURES = (BuildError, TamperedTiming, PeerError, PeerDied)
"""What a kernel that does not work raises."""
TRIES = 2
"""Number of processes in which the initial kernel is tried: something else may end the first."""


@dataclass(kw_only=True)
class LoadedTrial:
    """What the process holds for a configuration; `key` names its compiled code."""

    number: int
    key: str
    tree: Path
    kernel: Kernel | None = None
    peer: Peer | None = None
    timers: list[QuickTimer] = field(default_factory=list)
    generation: int = -1


class TrialProcess:
    """Loads trials into one process; starts another after a crash or when memory is full."""

    def __init__(self, session: Session, oracle: Oracle, name: str, ahead: Precompiler,
                 cases: Sequence[Case], plan: Plan, limits: Limits,
                 held: DeviceLock | None) -> None:
        self.session, self.name, self.ahead, self.cases = session, name, ahead, cases
        self.oracle = oracle
        self.plan = plan
        self.held = held
        self.runners = RunnerPool(limits, in_process=True)
        self.generation = 0
        self._loaded: list[Peer] = []
        self._sharing: list[QuickTimer] = []
        """The first trial's timers; if trials share buffers, all others use the slots of these."""
        self.shares_buffers = not session.target.returns and all(
            arg.kind in ("input", "output", "scalar") for arg in session.target.args)
        """Whether trials use the same buffers, since the task lets none write to its inputs."""
        bytes_each = max(1, sum(case.footprint for case in cases))
        self._most = MOST_SHARING if self.shares_buffers else max(
            2, (session.device.memory_bytes or 16 << 30) // MEMORY_SHARE // bytes_each)

    def load(self, trial: LoadedTrial) -> None:
        """Load a trial's kernel, and make or share its buffers. Raises PeerError and PeerDied."""
        if len(self._loaded) >= self._most:
            self.restart()
        trial.generation = self.generation
        trial.kernel = self.session.make(trial.tree, self.name)
        self.ahead.give(trial.key, trial.kernel)
        trial.peer = self.runners.start(trial.kernel, lock=self.held)
        self._loaded.append(trial.peer)
        trial.timers = [QuickTimer(self.oracle, trial.peer, case, self.plan)
                        for case in self.cases]
        try:
            for index, timer in enumerate(trial.timers):
                timer.prepare(self._sharing[index] if self._sharing else None)
            if self.shares_buffers and not self._sharing:
                self._sharing = trial.timers
        except PeerError:  # its buffers may be incomplete: no other trial may share them
            with contextlib.suppress(PeerError, PeerDied):
                self.unload(trial)
            raise

    def warm(self, trial: LoadedTrial) -> None:
        """Warm up every class and choose the number of calls of a block."""
        for timer in trial.timers:
            timer.warm()

    def reload(self, trial: LoadedTrial) -> None:
        """Load and warm a trial again if its process has been replaced."""
        if trial.generation != self.generation:
            self.load(trial)
            self.warm(trial)

    def unload(self, trial: LoadedTrial) -> None:
        """Free what the process holds for a trial, if it is still there."""
        peer = trial.peer
        if (trial.generation == self.generation and isinstance(peer, SharedRunner)
                and peer in self._loaded):
            self._loaded.remove(peer)
            peer.vacate()
            for timer in trial.timers if trial.timers is not self._sharing else ():
                timer.forget()

    def recover(self, trial: LoadedTrial, error: PeerError | PeerDied) -> None:
        """Unload a failed trial; restart unless the process can still reach the card."""
        with contextlib.suppress(PeerError, PeerDied):
            if trial.peer is not None and isinstance(error, PeerError):
                trial.peer.ask("context", device=self.session.place.device)
                self.unload(trial)
                return
        self.restart()

    def restart(self) -> None:
        """End the process; the next trial starts another one."""
        self.generation += 1
        for peer in self._loaded:
            peer.kill()
        self._loaded.clear()
        self._sharing = []

    def close(self) -> None:
        self.restart()
        self.runners.close()


def initial_fault(session: Session, error: KoptError, *, ran: bool) -> IncumbentFault | DeviceFault:
    """Return the fault to raise for an initial kernel that fails in TRIES processes.

    It is a fault of the card if the kernel `ran` on it before.
    """
    if ran and not session.on_cpu:
        return DeviceFault("the loop's initial configuration ran there before and now fails: "
                           f"{error.what}", where=session.device.id)
    return IncumbentFault(f"the loop's initial configuration does not run: {error.what}",
                          where=session.target.source)
