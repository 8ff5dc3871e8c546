"""The correctness half of a verdict: the oracle checks every class on several distributions."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from harness.case import Case, Errors
from harness.compile.kernel import Kernel
from harness.correctness import runtime_audit
from harness.correctness.buffer_check import buffer_problem, keeps_buffers
from harness.correctness.input_plan import plan_inputs, strided_views
from harness.correctness.statefulness import StatefulnessCheck
from harness.correctness.tolerance import FLOOR, Tolerance
from harness.correctness.untimed_checks import UntimedChecks
from harness.errors import IncumbentFault
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.runners.oracle_client import Oracle
from harness.runners.session import Session
from harness.runners.slots.case_memory import CaseMemory
from harness.runners.slots.slot_ring import JudgedSlot
from harness.tasks.target import ConfigClass
from harness.verdict import Evidence, Finding, TraceStep


class CandidateFailed(Exception):
    """The candidate failed in a way that ends its evaluation; the text is the reason.

    `fault` is "build", "crash", "timeout" or "tests" if an honest mistake may be the cause.
    """

    def __init__(self, reason: str, *, fault: str = "") -> None:
        super().__init__(reason)
        self.fault = fault


class CorrectnessCheck:
    """Checks one candidate; collects its worst errors by class, its findings and its notes.

    `on_first` receives the first case of each class before the candidate runs on it.
    """

    def __init__(self, session: Session, oracle: Oracle, tolerance: Tolerance,
                 progress: Callable[[str, str, float | None], None],
                 on_first: Callable[[Case], None] | None = None) -> None:
        self.session, self.oracle, self.tolerance = session, oracle, tolerance
        self._on_first = on_first or (lambda case: None)
        self._progress = progress
        self.cases: dict[str, Case] = {}
        """The first case of each class, which is also timed."""
        self.errors: dict[str, Errors] = {}
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.evidence: list[Evidence] = []
        self.kinds: dict[str, list[str]] = {}
        """By class, the kinds of input for timed calls: all checked ones but constant inputs and
        those on which the baseline's own error was found to exceed the floor."""
        self.steps: tuple[TraceStep, ...] | None = None
        """What the kernel recognised over training steps, if `trace_weights` is set."""
        self.trace_weights: Collection[str] | None = None
        self.should_hold_out = True
        """Whether the candidate also runs on held-out shapes; the baseline's code need not."""
        self._held: DeviceLock | None = None
        self._first_case: Future[Case] | None = None
        """The first case of the first class, made while the candidate's runner starts."""

    def run(self, candidate: Kernel, held: DeviceLock | None) -> bool:
        """Return whether the candidate is right on every class. Raises CandidateFailed."""
        self.candidate, self._held = candidate, held
        classes = self.session.target.classes
        kinds = plan_inputs([entry.name for entry in classes], self.session.settings.distributions,
                            secrets.randbelow(1 << 16))
        where = "load"
        try:
            with self._making_ahead(classes[0], kinds[classes[0].name]), self._runner() as runner:
                for index, config_class in enumerate(classes):
                    where = f"class {config_class.name}"
                    self._progress("checking", f"{where}: the reference", index / len(classes))
                    if not self._check_class(config_class, kinds[config_class.name], runner):
                        break
                self._add_audit(runtime_audit.watch(runner))
                if self.should_hold_out and all_right(self.session, self.errors):
                    self._check_buffers()
                    self._check_held_out(runner)  # last, since it may end the runner
        except (PeerError, PeerDied) as error:
            slow = isinstance(error, PeerDied) and error.outcome.ended == "timeout"
            raise CandidateFailed(f"{where}: {error.what}",
                                  fault="timeout" if slow else "crash") from None
        finally:
            self.tolerance.close()
            self.notes += self.tolerance.notes
        return all_right(self.session, self.errors)

    @contextmanager
    def _making_ahead(self, config_class: ConfigClass, kinds: Sequence[str]) -> Iterator[None]:
        """Let the oracle make the first case in the background, if it works on a card.

        A card loads each operation at its first use, which takes a third of a second in all.
        """
        with ThreadPoolExecutor(1, "kopt-first-case") as pool:
            if kinds and not self.session.on_cpu:
                self._first_case = pool.submit(self.oracle.make, config_class, kinds[0])
            yield

    def _make(self, config_class: ConfigClass, kind: str) -> Case:
        if (ahead := self._first_case) is not None:
            self._first_case = None
            return ahead.result()
        return self.oracle.make(config_class, kind, self.cases.get(config_class.name))

    @contextmanager
    def _runner(self) -> Iterator[Peer]:
        """Start the candidate's runner; on a GPU, do not wait until it has ended."""
        runners = self.session.runners
        runner = runners.start(self.candidate, lock=self._held)
        try:
            yield runner
        finally:
            if self.session.on_cpu:
                runner.close()
            else:
                runners.end([runner])

    def _check_buffers(self) -> None:
        problem = keeps_buffers(self.session) and buffer_problem(
            self.session, self.oracle, self.tolerance.baseline, self.candidate,
            next(iter(self.cases.values())), self._held)
        if problem:
            self.findings.append(Finding(rule="buffers", severity="reject", detail=problem))
            raise CandidateFailed(problem)

    def _check_held_out(self, runner: Peer) -> None:
        checks = UntimedChecks(
            target=self.session.target, oracle=self.oracle, tolerance=self.tolerance, runner=runner,
            candidate=self.candidate, held=self._held, on_gpu=not self.session.on_cpu)
        self.evidence.append(checks.run())
        self.findings += checks.findings
        for finding in checks.findings:
            if finding.severity == "reject":
                raise CandidateFailed(finding.detail)

    def _check_class(self, config_class: ConfigClass, kinds: tuple[str, ...], runner: Peer) -> bool:
        trivial = TrivialAnswers(config_class.name)
        memory: CaseMemory | None = None
        has_weights = False  # if so, a slot for each case: a kernel may know weights by address
        for number, kind in enumerate(kinds):
            case = self._make(config_class, kind)
            if case.skip:
                self.notes.append(f"class {config_class.name}: no {kind} inputs: {case.skip}")
                continue
            self.notes += [f"class {config_class.name}: {kind} inputs: {note}"
                           for note in case.notes]
            if memory is None:
                self._progress("checking", f"class {config_class.name}",
                               len(self.errors) / len(self.session.target.classes))
                self._on_first(case)
                has_weights = any(tensor["weight"] for tensor in case.tensors)
                memory = CaseMemory(self.oracle, runner, case,
                                    slots=len(kinds) + 1 if has_weights else 2)
            errors = self._check_case(case, memory, number if has_weights else 0)
            if not errors.right:
                return False
            if self.tolerance.is_well_conditioned(case) and kind != "constant":
                self.kinds.setdefault(config_class.name, []).append(kind)
            trivial.add(case, errors, self.tolerance)
        self.findings += trivial.findings()
        if memory is not None:
            memory.close()
        return True

    def _check_case(self, case: Case, memory: CaseMemory, slot: int) -> Errors:
        runner, first = memory.peer, self.cases.setdefault(case.config_class, case) is case
        errors = self._judge(case, memory.call(case, slot))
        if first and errors.right:
            errors = self._check_state(case, errors, memory)
        if first and errors.right:
            self._add_audit(runtime_audit.trial(memory, case, self.session.target))
        if first and errors.right and self.trace_weights is not None and self.steps is None:
            self.steps = runtime_audit.trace(memory, self.trace_weights)
        if first and errors.right and any(t["strided"] for t in case.tensors):
            views = CaseMemory(self.oracle, runner, case, tensors=strided_views(case))
            errors = self._judge(case, views.call(case)).worse(errors)
            views.close()
        self.errors[case.config_class] = errors.worse(self.errors.get(case.config_class))
        if not first:
            self.oracle.drop(case)
        return errors

    def _add_audit(self, findings: list[Finding]) -> None:
        self.findings += runtime_audit.new_findings(findings, self.findings)
        if reason := runtime_audit.reject_reason(findings):
            raise CandidateFailed(reason)

    def _check_state(self, case: Case, errors: Errors, memory: CaseMemory) -> Errors:
        states = StatefulnessCheck(self.oracle, memory, self._judge,
                                   slow=self.session.place.interpret)
        first, errors = errors, states.run(case, errors)
        self.findings += states.findings
        if states.findings:
            raise CandidateFailed(states.findings[0].detail)
        if states.answers and not self.session.target.stochastic:
            self._report_unstable(case, [first, *states.answers])
        return errors

    def _report_unstable(self, case: Case, answers: list[Errors]) -> None:
        """Report that one call gave different results; mere rounding, as by atomics, is a note."""
        detail = f"class {case.config_class}: repeated calls gave different results"
        right = all(errors.right for errors in answers)
        if right and not self.tolerance.baseline.is_stable(case, self.candidate, self._held):
            self.notes.append(f"{detail}, as with the baseline")
            return
        small = all(errors.right and errors.basis == FLOOR for errors in answers)
        self.findings.append(Finding(
            rule="unstable", severity="note" if small else "flag", detail=detail + (
                ", which differ only by rounding" if small else
                ", all of them correct" if right else ", not all of them correct")))

    def _judge(self, case: Case, errors: Errors, known: Errors | None = None) -> Errors:
        """Return the errors after the tolerance has judged them.

        Errors of the same outputs as `known` are returned as they are.
        """
        if known is not None and known.digests == errors.digests:
            return errors
        judged = self.tolerance.judge(case, errors, self.candidate, self._held)
        return excused_errors(errors) if judged is None else judged

    def limits(self, case: Case) -> list[float]:
        """Return by output how far the answers of two right kernels may differ.

        Where they differ more, the reference decides; see `judge_slots`. What was allowed on
        ill-conditioned inputs counts only where timed calls have no others.
        """
        known = None if self.kinds.get(case.config_class) else self.errors.get(case.config_class)
        allowed = 0.0 if known is None else known.allowed or 0.0
        return [2 * max(allowed, self.tolerance.floor_of(case, index))
                for index in range(len(self.session.target.output_dtypes))]

    def judge_slots(self, judged: Sequence[JudgedSlot], incumbent: Kernel) -> None:
        """Judge answers of timed calls of both sides by the reference.

        Raises CandidateFailed, or IncumbentFault if only the incumbent's answer is wrong.
        """
        try:
            for slot in judged:
                errors = self.tolerance.judge(slot.case, slot.errors["candidate"], self.candidate,
                                              self._held)
                if errors is not None and not errors.right:
                    detail = f"class {slot.case.config_class}: a timed call gave a wrong answer"
                    self.findings.append(Finding(rule="timed-answer", severity="reject",
                                                 detail=detail))
                    raise CandidateFailed(detail)
                other = self.tolerance.judge(slot.case, slot.errors["incumbent"], incumbent,
                                             self._held)
                if errors is not None and other is not None and not other.right:
                    raise IncumbentFault(
                        f"class {slot.case.config_class}: a timed call of the incumbent gave a "
                        "wrong answer", where=self.session.target.source,
                        fix="start from a correct kernel")
        finally:
            self.tolerance.close()
            for slot in judged:
                self.oracle.drop(slot.case)


class TrivialAnswers:
    """Finds trivial answers that would pass every case of a class: the check is then too weak."""

    def __init__(self, config_class: str) -> None:
        self._class = config_class
        self._passes: dict[tuple[int, str], bool] = {}

    def add(self, case: Case, errors: Errors, tolerance: Tolerance) -> None:
        """Compare the trivial answers to a case with the errors that its candidate was allowed."""
        for control in case.controls:
            allowed = max(errors.allowed or 0.0, tolerance.floor_of(case, control.output))
            key = control.output, control.name
            passes = control.relative is not None and control.relative <= allowed
            self._passes[key] = passes and self._passes.get(key, True)

    def findings(self) -> list[Finding]:
        names = dict.fromkeys(name for (_, name), passes in self._passes.items() if passes)
        return [Finding(rule="weak-check", severity="flag", detail=(
            f"class {self._class}: the check is too weak, {', '.join(names)} would also pass"))] \
            if names else []


def excused_errors(errors: Errors) -> Errors:
    """Return errors that count as right, for a case on which the baseline fails as well."""
    return Errors(absolute=0.0, relative=0.0, bad=0, each=(0.0,) * len(errors.each),
                  digests=errors.digests, used=0.0, over=0.0, allowed=0.0)


def all_right(session: Session, errors: Mapping[str, Errors]) -> bool:
    classes = session.target.classes
    return len(errors) == len(classes) and all(errors[entry.name].right for entry in classes)
