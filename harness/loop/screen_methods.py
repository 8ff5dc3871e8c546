"""Two ways to screen a configuration: alternating in one process, or as a pair of processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.case import Case, Errors
from harness.compile.kernel import Kernel
from harness.compile.precompile import Precompiler
from harness.correctness.tolerance import Tolerance
from harness.formats import file_copy
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.loop.quick_timing import QuickTimer
from harness.loop.screen_summary import ScreenSummary
from harness.loop.trial_process import FAILURES, TRIES, initial_fault
from harness.loop.trial_turns import TrialTurns, WrongResult
from harness.runners.oracle_client import Oracle
from harness.runners.session import Session
from harness.runners.slots.case_memory import CaseMemory
from harness.runners.slots.slot_ring import JudgedSlot, SlotRings
from harness.search.trials.trials import Screened
from harness.timing.paired_timing import ClassTiming, PairedTiming
from harness.timing.plan import SCREEN

COMPILES_S = 2.0
"""If a compile takes longer, the loop releases the card meanwhile."""
MORE = 3
"""Runners of one kernel that start ahead, while earlier ones run."""


class Infeasible(Exception):
    """A trial that the device cannot launch."""


def require_launchable(ahead: Precompiler, key: str) -> None:
    """Raise Infeasible if this device cannot launch a kernel; one with unknown needs may run."""
    if reasons := ahead.get(key).reasons:
        raise Infeasible(f"cannot be launched: {'; '.join(reasons)}")


class TurnScreening(TrialTurns):
    """Screens precompiled kernels in alternation with the initial one, in one process on a card."""

    def __init__(self, session: Session, oracle: Oracle, tolerance: Tolerance, ahead: Precompiler,
                 cases: Sequence[Case], initial: Path, key: str, summary: ScreenSummary) -> None:
        super().__init__(session, oracle, tolerance, ahead, cases, session.fitted(SCREEN),
                         initial, key)
        self._summary = summary

    def screen(self, source: str) -> Screened:
        """Screen a source. Raises Infeasible, WrongResult, PeerError, PeerDied and BuildError."""
        key = self.ahead.expect(source)
        try:
            if wait([self.ahead.future(key)], COMPILES_S).not_done:
                self.close()  # other processes may use the card meanwhile
            require_launchable(self.ahead, key)
            try:
                return self._screen(source, key)
            except WrongResult:
                if not self.buffers_used_before:
                    raise
                return self._screen(source, key)  # again, on buffers that no other trial has used
        finally:
            if key != self._initial_key:
                self.ahead.forget(key)

    def _screen(self, source: str, key: str) -> Screened:
        with self.trial(source.encode(), key) as trial:
            first_ns = trial.first()
            if loser := self._summary.clear_loser(first_ns):
                return loser
            timings = trial.time_with_initial()
            may_be_best = self._summary.may_be_best(timings)
            if may_be_best:
                trial.check()
        any_errors = next(iter(trial.errors.values()))  # unchecked classes only add their times
        screened = self._summary.screened(
            {name: trial.errors.get(name, any_errors) for name in timings}, timings)
        if may_be_best:
            self._summary.best.take(screened.log_ratio, first_ns)
            return screened
        return replace(screened, reason=screened.reason or (
            f"slower than the best: checked on class {', '.join(trial.errors)} alone"))


class PairScreening:
    """Screens kernels of any language: checked in one process, timed in a pair of processes."""

    def __init__(self, session: Session, oracle: Oracle, tolerance: Tolerance,
                 ahead: Precompiler | None, cases: Sequence[Case], initial: Kernel,
                 initial_tree: Path, summary: ScreenSummary) -> None:
        self.session, self._oracle, self._tolerance, self._ahead = session, oracle, tolerance, ahead
        self._cases, self._initial, self._initial_tree = cases, initial, initial_tree
        self._summary = summary
        self._initial_ran, self._refill = False, 0 if ahead else MORE
        self._last_home: Path | None = None
        self._tree = Path(session.settings.scratch) / "trial"
        file_copy.remove(self._tree)  # left by a killed loop
        session.runners.prestart(initial, 1)

    def screen(self, source: str) -> Screened:
        """Screen a source; raises like `TurnScreening.screen`, and TamperedTiming."""
        if not self._tree.exists():
            file_copy.copy_sources(self._initial_tree, self._tree)
        (self._tree / self.session.target.source).write_bytes(source.encode())
        if self._ahead is None:
            return self._screen(self.session.make(self._tree, "trial"))
        key = self._ahead.expect(source)
        candidate = self.session.make(self._tree, f"trial-{key}")  # with a home of its own
        if self._last_home is not None and self._last_home != candidate.home:
            file_copy.remove(self._last_home)
        self._last_home = candidate.home
        try:
            self.session.runners.prestart(candidate, 2)  # they start while it compiles
            require_launchable(self._ahead, key)
            self._ahead.give(key, candidate)
            return self._screen(candidate)
        finally:
            self.session.runners.discard(candidate)
            self._ahead.forget(key)

    def _screen(self, candidate: Kernel) -> Screened:
        with self.session.working() as held, self._tolerance, self._check_initial_on_failure(held):
            errors, first_ns = self._check(candidate, held)
            if not self.session.measurable:
                return Screened(correctness="PASS")
            if loser := self._summary.clear_loser(first_ns):
                return loser
            with self.session.measuring(held) as owned:
                timings, slots = self._time(candidate, owned)
            for slot in slots:  # may start the baseline's process, which ends with the trial
                self._require_right(slot.case, slot.errors["candidate"], candidate, held)
        screened = self._summary.screened(errors, timings)
        self._summary.best.take(screened.log_ratio, first_ns)
        return screened

    @contextmanager
    def _check_initial_on_failure(self, held: DeviceLock | None) -> Iterator[None]:
        """When a trial fails, run the initial kernel alone: if that fails too, raise its fault."""
        try:
            yield
        except (PeerError, PeerDied):
            if self.session.measurable:  # otherwise the initial kernel is not run with trials
                self._run_initial(held)
            raise
        self._initial_ran = self.session.measurable

    def _run_initial(self, held: DeviceLock | None) -> None:
        for number in range(1, TRIES + 1):
            try:
                with self.session.runners.start(self._initial, lock=held) as runner:
                    for case in self._cases:
                        memory = CaseMemory(self._oracle, runner, case)
                        memory.place(case)
                        memory.run()
                return
            except FAILURES as error:
                if number == TRIES:
                    raise initial_fault(self.session, error, ran=self._initial_ran) from None

    def _check(self, candidate: Kernel, held: DeviceLock | None,
               ) -> tuple[Mapping[str, Errors], Mapping[str, float]]:
        """Return the errors and, of precompiled kernels, the ns of first blocks; both by class."""
        errors, first_ns = {}, {}
        with self.session.runners.start(candidate, lock=held,
                                        refill=self._refill) as runner, self._tolerance:
            for case in self._cases:
                memory = CaseMemory(self._oracle, runner, case)
                errors[case.config_class] = self._require_right(case, memory.call(case), candidate,
                                                                held)
                memory.close()
            for case in self._cases if self._ahead else ():
                timer = QuickTimer(self._oracle, runner, case, self.session.fitted(SCREEN))
                first_ns[case.config_class] = timer.first()
        return errors, first_ns

    def _require_right(self, case: Case, errors: Errors, candidate: Kernel,
                       held: DeviceLock | None) -> Errors:
        """Return the errors as judged by the tolerance. Raises WrongResult if too large."""
        judged = self._tolerance.judge(case, errors, candidate, held)
        if judged is None or not judged.right:
            raise WrongResult(f"wrong result on class {case.config_class}")
        return judged

    def _time(self, candidate: Kernel, held: DeviceLock,
              ) -> tuple[Mapping[str, ClassTiming], Sequence[JudgedSlot]]:
        """Return the timings by class, and the timed calls that the reference judged."""
        session = self.session
        sides = {"candidate": candidate, "incumbent": self._initial}

        def start_runners(order: Sequence[str]) -> Sequence[Peer]:
            peers = session.runners.start_all([sides[side] for side in order], lock=held,
                                              refill=self._refill)
            if self._ahead:
                session.runners.prestart(self._initial, MORE)
            return peers

        slots = SlotRings(
            self._oracle, on_gpu=not session.on_cpu, kinds=lambda name: ["normal"],
            limits=lambda case: [2 * self._tolerance.floor_of(case, index)
                                 for index in range(len(session.target.output_dtypes))],
            flush_bytes=session.fitted(SCREEN).cache_bytes)
        with self._oracle.running():
            timings = PairedTiming(
                session.fitted(SCREEN), self._cases, slots, start_runners,
                alone=session.on_cpu and not session.in_process, freeze=not session.in_process,
                quiet=any(side.tunes_itself for side in sides.values()),
                end=None if session.on_cpu else session.runners.end, cancel=session.cancel).run()
        return {timing.config_class: timing for timing in timings}, slots.judged
