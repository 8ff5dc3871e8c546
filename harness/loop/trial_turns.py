"""Screen a loop's trials on a card, in one process, in alternation with the initial kernel.

Separate processes would each need a context and copies of all inputs. Every trial is checked on the
cheapest class, and one that may become the best on all classes. No verdict uses these times.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from harness.case import Case, Errors
from harness.compile.precompile import Precompiler
from harness.correctness.tolerance import Tolerance
from harness.formats import file_copy
from harness.isolation.rpc import PeerDied, PeerError
from harness.loop import trial_process
from harness.loop.quick_timing import BLOCKS, QuickTimer
from harness.loop.trial_process import TRIES, LoadedTrial, TrialProcess
from harness.runners.oracle_client import Oracle
from harness.runners.session import Session
from harness.timing.paired_timing import ClassTiming
from harness.timing.plan import Plan

HOLD_S = 30.0
"""After this time the card is released once, so that other processes get a turn."""
LIMIT_S = 120.0
"""Limit of one trial; above `HOLD_S` and above what a working trial takes."""
ROUNDS = 4


class WrongResult(Exception):
    """A trial ran and computed a wrong result."""


class TrialTurns:
    """Screens trials in one process on one card.

    `initial` is the tree of the initial configuration, `key` names its compiled source.
    """

    def __init__(self, session: Session, oracle: Oracle, tolerance: Tolerance,
                 ahead: Precompiler, cases: Sequence[Case], plan: Plan, initial: Path,
                 key: str) -> None:
        self.session, self.oracle, self.tolerance, self.ahead = session, oracle, tolerance, ahead
        self.cases, self.plan = cases, plan
        self._initial_tree, self._initial_key = initial, key
        self.last_errors: dict[str, Errors] = {}
        """The last errors by class; a trial with identical outputs has the same errors."""
        self.buffers_used_before = False
        """Whether an earlier trial may have damaged the buffers that the last trial used."""
        self._trials_in_process = 0
        self._number = 0
        self._resources: ExitStack | None = None
        self._process: TrialProcess | None = None
        self._initial: LoadedTrial | None = None
        self._opened_at = 0.0
        self._initial_ran = False
        self._cheapest = min(cases, key=lambda case: case.footprint)
        file_copy.remove(Path(session.settings.scratch) / "turns")  # left by a killed loop

    def close(self) -> None:
        """End the process and release the card."""
        if self._resources is not None:
            self._resources.close()
        self._resources = self._process = self._initial = None
        self._trials_in_process = 0

    @contextmanager
    def trial(self, source: bytes, key: str) -> Iterator[RunningTrial]:
        """Yield a trial of a source; after any error in it, the next trial finds a working process.

        Raises PeerError or PeerDied if the trial fails, and BuildError. If the process fails with
        the trial and the initial kernel fails in a new process, raises IncumbentFault or
        DeviceFault instead.
        """
        process = self._open()
        self.buffers_used_before = process.shares_buffers and self._trials_in_process > 0
        self._trials_in_process += 1
        self._number += 1
        tree = self.session.folder("turns") / str(self._number)
        file_copy.copy_sources(self._initial_tree, tree)
        (tree / self.session.target.source).write_bytes(source)
        loaded = LoadedTrial(number=self._number, key=key, tree=tree)
        try:
            yield RunningTrial(self, process, loaded)
            process.unload(loaded)
        except (PeerError, PeerDied) as error:
            process.recover(loaded, error)
            self._prepare_initial(process)
            raise
        except BaseException:
            self.close()
            raise
        finally:
            file_copy.remove(tree)
            self._release_if_due()

    def _release_if_due(self) -> None:
        if time.monotonic() - self._opened_at > HOLD_S:
            self.close()

    def _open(self) -> TrialProcess:
        """Return the process, with the card's lock held and the initial kernel loaded and warm."""
        self._release_if_due()
        if self._process is None:
            limits = self.session.runners.limits
            with ExitStack() as resources:
                held = resources.enter_context(self.session.working())
                resources.enter_context(self.tolerance)
                self._process = TrialProcess(
                    self.session, self.oracle, "turns", self.ahead, self.cases, self.plan,
                    replace(limits, wall_s=min(limits.wall_s, LIMIT_S)), held)
                resources.callback(self._process.close)
                self._resources = resources.pop_all()
            self._opened_at = time.monotonic()
        self._prepare_initial(self._process)
        return self._process

    def _prepare_initial(self, process: TrialProcess) -> None:
        """Load and warm the initial kernel unless the process holds it; if it fails, in a new one.

        Raises IncumbentFault or DeviceFault.
        """
        if self._initial is None:
            self._initial = LoadedTrial(number=0, key=self._initial_key, tree=self._initial_tree)
        initial, tries = self._initial, 0
        try:
            while initial.generation != process.generation:
                tries += 1
                try:
                    process.load(initial)
                    process.warm(initial)
                    for timer in initial.timers:
                        timer.block()
                except trial_process.FAILURES as error:
                    if tries == TRIES:
                        raise trial_process.initial_fault(
                            self.session, error, ran=self._initial_ran) from None
                    process.restart()
        except BaseException:
            self.close()
            raise
        self._initial_ran = True


class RunningTrial:
    """One trial in progress."""

    def __init__(self, turns: TrialTurns, process: TrialProcess, loaded: LoadedTrial) -> None:
        self._turns, self._process, self._loaded = turns, process, loaded
        self.errors: dict[str, Errors] = {}
        """By class, for the classes checked so far."""

    def first(self) -> dict[str, float]:
        """Load the trial, check its cheapest class and time its first blocks.

        Returns by class the nanoseconds per call of its fastest first block. Raises WrongResult.
        """
        self._process.load(self._loaded)
        self._check(self._turns._cheapest)
        self._process.warm(self._loaded)
        return {timer.case.config_class: min(timer.block() for _ in range(BLOCKS))
                for timer in self._loaded.timers}

    def time_with_initial(self) -> dict[str, ClassTiming]:
        """Time blocks of the trial and of the initial kernel in alternating order.

        If the initial kernel fails, both are loaded into a new process. If it fails there too,
        though it ran alone before the trial was loaded, the trial is the cause. Raises PeerError
        and PeerDied.
        """
        try:
            return self._time()
        except _InitialFailed:
            self._process.restart()
            self._turns._prepare_initial(self._process)
            self._process.reload(self._loaded)
        try:
            return self._time()
        except _InitialFailed as failed:
            self._process.restart()
            raise PeerError("the incumbent failed while it was timed together with this trial: "
                            f"{failed}") from None

    def _time(self) -> dict[str, ClassTiming]:
        initial = self._turns._initial
        assert initial is not None
        timings = {}
        for trial_timer, initial_timer in zip(self._loaded.timers, initial.timers, strict=True):
            rounds: list[tuple[float, float]] = []
            for number in range(ROUNDS):
                initial_first_ns = _initial_block(initial_timer) if number % 2 else None
                trial_ns = trial_timer.block()
                rounds.append((trial_ns, initial_first_ns or _initial_block(initial_timer)))
            name = trial_timer.case.config_class
            timings[name] = ClassTiming(
                config_class=name, candidate_us=median(trial_ns for trial_ns, _ in rounds) / 1e3,
                incumbent_us=median(initial_ns for _, initial_ns in rounds) / 1e3,
                log_ratios=tuple(math.log(initial_ns / trial_ns)
                                 for trial_ns, initial_ns in rounds))
        return timings

    def check(self) -> None:
        """Check the classes that were not checked yet. Raises WrongResult."""
        for case in self._turns.cases:
            if case.config_class not in self.errors:
                self._check(case)

    def _check(self, case: Case) -> None:
        turns, loaded = self._turns, self._loaded
        assert loaded.peer is not None and loaded.kernel is not None
        memory = next(timer.memory for timer in loaded.timers if timer.case is case)
        known = turns.last_errors.get(case.config_class) if self._process.shares_buffers else None
        errors = memory.call(case, known=known, outputs_only=self._process.shares_buffers)
        turns.last_errors[case.config_class] = errors
        judged = turns.tolerance.judge(case, errors, loaded.kernel, self._process.held)
        if judged is None or not judged.right:
            raise WrongResult(f"wrong result on class {case.config_class}")
        self.errors[case.config_class] = judged


class _InitialFailed(Exception):
    """The initial kernel failed while it was timed together with a trial."""


def _initial_block(timer: QuickTimer) -> float:
    try:
        return timer.block()
    except (PeerError, PeerDied) as error:
        raise _InitialFailed(error.what) from None
