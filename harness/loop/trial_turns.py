"""A loop's trials on a card, in one process beside the start: a proposal's times, no verdict's.

Processes of its own cost a trial a context each and copies of all inputs, which takes longer than
all that is asked of it. The configurations of a source are one candidate, so that one process runs
them (`harness.loop.trial_process`), on buffers that stay, each in turn with the start. A trial has
to be right on the class that costs least to check; only one that may become the best is checked on
all.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from harness.case import Case, Errors
from harness.compile.precompile import Ahead
from harness.correctness.tolerance import Tolerance
from harness.formats import file_copy
from harness.isolation.rpc import PeerDied, PeerError
from harness.loop import start_kernel
from harness.loop.trial_process import Entry, Lane
from harness.runners.oracle_client import Oracle
from harness.runners.session import Session
from harness.timing.paired_timing import ClassTiming
from harness.timing.plan import Plan
from harness.timing.quick_timing import BLOCKS, QuickTimer

HOLD_S = 30.0
"""So long one process keeps a card before others get their turn."""
LIMIT_S = 120.0
"""A trial that hangs costs no more; above `HOLD_S` and what a right one may take."""
ROUNDS = 4


class WrongResult(Exception):
    """A trial ran and computed something else."""


class TrialTurns:
    """The bench of a loop's trials on one card; close it to give the card back.

    `start` is a folder with the starting source, `key` the name of what was compiled of it.
    """

    def __init__(self, stage: Session, oracle: Oracle, budget: Tolerance, ahead: Ahead | None,
                 cases: Sequence[Case], plan: Plan, start: Path, key: str) -> None:
        self.stage, self.oracle, self.budget, self.ahead = stage, oracle, budget, ahead
        self.cases, self.plan = cases, plan
        self._start_tree, self._start_key = start, key
        self.known: dict[str, Errors] = {}
        """By class what was last found: of the same outputs it need not be worked out again."""
        self.shared_before = False
        """Whether the last trial worked on buffers that another one may have spoilt."""
        self._ran = 0
        self._number = 0
        self._session: ExitStack | None = None
        self._lane: Lane | None = None
        self._start: Entry | None = None
        self._since = 0.0
        self._start_ran = False
        self._cheapest = min(cases, key=lambda case: case.footprint)
        file_copy.remove(Path(stage.settings.scratch) / "turns")  # of one that was killed

    def close(self) -> None:
        """End the process and let go of the card."""
        if self._session is not None:
            self._session.close()
        self._session = self._lane = self._start = None
        self._ran = 0

    @contextmanager
    def trial(self, source: bytes, key: str) -> Iterator[RunningTrial]:
        """Yield a trial of a source; whatever it raises, the next one finds a working bench.

        Raises PeerError and PeerDied when it fails, BuildError, and what a sick machine raises:
        who fails with the process fails only if the start still runs in another one.
        """
        lane = self._opened()
        self.shared_before = lane.shares and self._ran > 0
        self._ran += 1
        self._number += 1
        tree = self.stage.folder("turns") / str(self._number)
        shutil.copytree(self._start_tree, tree, symlinks=True,
                        ignore=shutil.ignore_patterns(".git"))
        (tree / self.stage.target.source).write_bytes(source)
        entry = Entry(number=self._number, config={}, key=key, tree=tree)
        try:
            yield RunningTrial(self, lane, entry)
            lane.leave(entry)
        except (PeerError, PeerDied) as error:
            lane.broken(entry, error)
            self._ready(lane)
            raise
        except BaseException:
            self.close()
            raise
        finally:
            file_copy.remove(tree)
            if time.monotonic() - self._since > HOLD_S:
                self.close()

    def _opened(self) -> Lane:
        """Return the lane, with the card's lock held and the start ready to be timed."""
        if time.monotonic() - self._since > HOLD_S:
            self.close()
        if self._lane is None:
            limits = self.stage.runners.limits
            with ExitStack() as session:
                held = session.enter_context(self.stage.working())
                session.enter_context(self.budget)
                self._lane = Lane(
                    self.stage, "turns", self.ahead, self.cases, self.plan,
                    replace(limits, wall_s=min(limits.wall_s, LIMIT_S)), held, 1)
                session.callback(self._lane.close)
                self._session = session.pop_all()
            self._since = time.monotonic()
        self._ready(self._lane)
        return self._lane

    def _ready(self, lane: Lane) -> None:
        """Have the start ready to be timed in the lane's process, in another one if that fails.

        Raises IncumbentFault or DeviceFault when it runs in neither.
        """
        if self._start is None:
            self._start = Entry(number=0, config={}, key=self._start_key, tree=self._start_tree)
        start, tries = self._start, 0
        try:
            while start.generation != lane.generation:
                tries += 1
                try:
                    lane.begin(start)
                    lane.warm(start)
                    for solo in start.solos:
                        solo.block()
                except start_kernel.FAILURES as error:
                    if tries == start_kernel.TRIES:
                        raise start_kernel.fault(self.stage, error, ran=self._start_ran) from None
                    lane.restart()
        except BaseException:
            self.close()
            raise
        self._start_ran = True


class RunningTrial:
    """One trial under way."""

    def __init__(self, turns: TrialTurns, lane: Lane, entry: Entry) -> None:
        self._turns, self._lane, self._entry = turns, lane, entry
        self.errors: dict[str, Errors] = {}
        """By class that it was checked on."""

    def first(self) -> dict[str, float]:
        """Load it, check it on the cheapest class, and return the nanoseconds of its first blocks.

        Raises WrongResult.
        """
        self._lane.begin(self._entry)
        self._check(self._turns._cheapest)
        self._lane.warm(self._entry)
        return {solo.case.config_class: min(solo.block() for _ in range(BLOCKS))
                for solo in self._entry.solos}

    def beside(self) -> dict[str, ClassTiming]:
        """Time it in turns with the start, who goes first in turns as well.

        If the start fails, both are begun anew; what it fails beside again, alone it does run, is
        to blame. Raises PeerError and PeerDied.
        """
        try:
            return self._beside()
        except _StartFailed:
            self._lane.restart()
            self._turns._ready(self._lane)
            self._lane.again(self._entry)
        try:
            return self._beside()
        except _StartFailed as failed:
            self._lane.restart()
            raise PeerError(f"the start fails beside it: {failed}") from None

    def _beside(self) -> dict[str, ClassTiming]:
        start = self._turns._start
        assert start is not None
        timings = {}
        for ours, theirs in zip(self._entry.solos, start.solos, strict=True):
            taken: list[tuple[float, float]] = []
            for number in range(ROUNDS):
                if number % 2:
                    other = _block_of_start(theirs)
                    taken.append((ours.block(), other))
                else:
                    own = ours.block()
                    taken.append((own, _block_of_start(theirs)))
            name = ours.case.config_class
            timings[name] = ClassTiming(
                config_class=name, candidate_us=median(own for own, _ in taken) / 1e3,
                incumbent_us=median(other for _, other in taken) / 1e3,
                log_ratios=tuple(math.log(other / own) for own, other in taken))
        return timings

    def check(self) -> None:
        """Check it on every class that it was not checked on yet. Raises WrongResult."""
        for case in self._turns.cases:
            if case.config_class not in self.errors:
                self._check(case)

    def _check(self, case: Case) -> None:
        turns, entry = self._turns, self._entry
        assert entry.peer is not None and entry.kernel is not None
        if self._lane.shares:
            answer = entry.peer.ask("recall", case=case.id, tensors=case.tensors)
            known = turns.known.get(case.config_class)
            errors = turns.oracle.judge(case, answer.get("outputs"), known, outputs_only=True)
            turns.known[case.config_class] = errors
        else:
            answer = entry.peer.ask("call", case=case.id, tensors=case.tensors)
            errors = turns.oracle.judge(case, answer.get("outputs"))
        judged = turns.budget.judge(case, errors, entry.kernel, self._lane.held)
        if judged is None or not judged.right:
            raise WrongResult(f"wrong result on class {case.config_class}")
        self.errors[case.config_class] = judged


class _StartFailed(Exception):
    """Beside a trial the start has failed."""


def _block_of_start(solo: QuickTimer) -> float:
    try:
        return solo.block()
    except (PeerError, PeerDied) as error:
        raise _StartFailed(error.what) from None
