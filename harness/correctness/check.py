"""The correctness half of a verdict: every class on several kinds of input, by the oracle."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from harness.case import Case, Errors
from harness.compile.kernel import Kernel
from harness.correctness import runtime_audit
from harness.correctness.controls import TrivialAnswers
from harness.correctness.coverage import plan_inputs
from harness.correctness.held_out_shapes import find_over_fit
from harness.correctness.statefulness import StatefulnessCheck
from harness.correctness.tolerance import FLOOR, Tolerance
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.runners.oracle_client import Oracle
from harness.runners.session import Session
from harness.target import ConfigClass
from harness.verdict import Finding, TraceStep


class CandidateFailed(Exception):
    """The candidate failed in a way that ends its evaluation; the text is the reason.

    `fault` is "build", "crash" or "tests" where it may be meant well and only be broken.
    """

    def __init__(self, reason: str, *, fault: str = "") -> None:
        super().__init__(reason)
        self.fault = fault


class CorrectnessCheck:
    """Checks one candidate; collects its worst errors by class and what it found on the way.

    `on_first` is told of the first case of each class before the candidate runs on it.
    """

    def __init__(self, stage: Session, oracle: Oracle, budget: Tolerance,
                 progress: Callable[[str, str, float | None], None],
                 on_first: Callable[[Case], None] | None = None) -> None:
        self.stage, self.oracle, self.budget = stage, oracle, budget
        self._on_first = on_first or (lambda case: None)
        self._progress = progress
        self.cases: dict[str, Case] = {}
        """The first case of each class; the one that is timed."""
        self.errors: dict[str, Errors] = {}
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.steps: tuple[TraceStep, ...] | None = None
        """What the kernel recognised over steps with new tensors, where `trace_weights` is set."""
        self.trace_weights: Collection[str] | None = None
        self._held: DeviceLock | None = None

    def run(self, candidate: Kernel, held: DeviceLock | None) -> bool:
        """Tell whether the candidate is right on every class. Raises Failed when it did not run."""
        self.candidate, self._held = candidate, held
        classes = self.stage.target.classes
        kinds = plan_inputs([c.name for c in classes], self.stage.settings.distributions,
                     secrets.randbelow(1 << 16))
        where = "load"
        try:
            with self._runner() as runner:
                for index, config_class in enumerate(classes):
                    where = f"class {config_class.name}"
                    self._progress("checking", where, index / len(classes))
                    if not self._class(config_class, kinds[config_class.name], runner):
                        break
                self._watched(runtime_audit.watch(runner))
                if all_right(self.stage, self.errors):
                    self._hidden(runner)  # the last: it may end the runner
        except (PeerError, PeerDied) as error:
            raise CandidateFailed(f"{where}: {error.what}", fault="crash") from None
        finally:
            self.budget.close()
            self.notes += self.budget.notes
        return all_right(self.stage, self.errors)

    @contextmanager
    def _runner(self) -> Iterator[Peer]:
        """Start the candidate's runner; a GPU's process is ended without waiting for it."""
        runners = self.stage.runners
        runner = runners.start(self.candidate, lock=self._held, yields=self.stage.yields)
        try:
            yield runner
        finally:
            if self.stage.on_cpu:
                runner.close()
            else:
                runners.end([runner])

    def _hidden(self, runner: Peer) -> None:
        if (found := find_over_fit(
                self.stage.target, self.oracle, self.budget, runner, self.candidate, self._held)):
            self.findings.append(found)

    def _class(self, config_class: ConfigClass, kinds: tuple[str, ...], runner: Peer) -> bool:
        controls = TrivialAnswers(config_class.name)
        for kind in kinds:
            case = self.oracle.make(config_class, kind, self.cases.get(config_class.name))
            if case.skip:
                self.notes.append(f"class {config_class.name}: no {kind} inputs: {case.skip}")
                continue
            errors = self._one(case, runner)
            if not errors.right:
                return False
            controls.note(case, errors, self.budget)
        self.findings += controls.findings()
        return True

    def _one(self, case: Case, runner: Peer) -> Errors:
        first = self.cases.setdefault(case.config_class, case) is case
        if first:
            self._on_first(case)
        answer = runner.ask("keep" if first else "call", tensors=case.tensors)
        errors = self._judged(case, answer, outputs_only=False)
        if first and errors.right:
            errors = self._states(case, errors, runner)
        if first and errors.right:
            self._watched(runtime_audit.trial(runner, case, self.stage.target))
        if first and errors.right and self.trace_weights is not None and self.steps is None:
            self.steps = runtime_audit.trace(runner, self.trace_weights)
        if first and errors.right and any(t["strided"] for t in case.tensors):
            answer = runner.ask("call", tensors=strided_views(case))
            errors = self._judged(case, answer, outputs_only=False).worse(errors)
        self.errors[case.config_class] = errors.worse(self.errors.get(case.config_class))
        if not first:
            self.oracle.drop(case)
        return errors

    def _watched(self, found: list[Finding]) -> None:
        self.findings += runtime_audit.new_findings(found, self.findings)
        if reason := runtime_audit.reject_reason(found):
            raise CandidateFailed(reason)

    def _states(self, case: Case, errors: Errors, runner: Peer) -> Errors:
        states = StatefulnessCheck(self.oracle, runner, self._judged,
                                   slow=self.stage.place.interpret)
        first, errors = errors, states.run(case, errors)
        self.findings += states.findings
        if states.findings:
            raise CandidateFailed(states.findings[0].detail)
        if states.answers and not self.stage.target.stochastic:
            self._unstable(case, [first, *states.answers])
        return errors

    def _unstable(self, case: Case, answers: list[Errors]) -> None:
        """Say that the same call gave several answers; rounding alone, as by atomics, is no fault.
        """
        detail = f"class {case.config_class}: the same call gave several answers"
        right = all(errors.right for errors in answers)
        if right and not self.budget.stable(case, self.candidate, self._held):
            self.notes.append(f"{detail}, as it does with the baseline")
            return
        small = all(errors.right and errors.basis == FLOOR for errors in answers)
        self.findings.append(Finding(
            rule="unstable", severity="note" if small else "flag", detail=detail + (
                ", which differ by rounding" if small else
                ", all of them right" if right else ", not all of them right")))

    def _judged(self, case: Case, answer: Mapping[str, object], known: Errors | None = None, *,
                outputs_only: bool = True) -> Errors:
        errors = self.oracle.judge(case, answer.get("outputs"), known, outputs_only=outputs_only)
        if known is not None and known.digests == errors.digests:
            return errors
        judged = self.budget.judge(case, errors, self.candidate, self._held)
        return excused_errors(errors) if judged is None else judged

    def recheck(self, case: Case, written: object,
                exchanged: Mapping[str, Mapping[int, int]]) -> None:
        """Judge what the timed calls left behind: the right answer to the contents they had."""
        if any(tensor["role"] == "inout" for tensor in case.tensors):
            return  # repeated calls on the same buffer have no expected value
        try:
            self.oracle.exchange(case, exchanged)
            errors = self._judged(case, {"outputs": written}, outputs_only=False)
        except PeerError as error:
            raise CandidateFailed(f"after timing: {error.what}") from None
        finally:
            self.budget.close()
        if not errors.right:
            detail = f"class {case.config_class}: the timed calls left a wrong answer"
            self.findings.append(Finding(rule="after-timing", severity="reject", detail=detail))
            raise CandidateFailed(detail)


LAYOUTS = ("columns", "transposed")


def strided_views(case: Case) -> list[dict[str, object]]:
    """Return a case's arguments as views where they may be, of every kind in turn."""
    strided = [t["name"] for t in case.tensors if t["strided"]]
    layouts = {name: LAYOUTS[index % 2] for index, name in enumerate(strided)}
    return [{**t, "layout": "columns" if len(t["shape"]) < 2 else layouts[t["name"]]}
            if t["name"] in layouts and t["shape"] else t for t in case.tensors]


def excused_errors(errors: Errors) -> Errors:
    """Return errors that count for nothing: the baseline fails on those inputs as well."""
    return Errors(absolute=0.0, relative=0.0, bad=0, each=(0.0,) * len(errors.each),
                  digests=errors.digests, used=0.0, over=0.0, allowed=0.0)


def all_right(stage: Session, errors: Mapping[str, Errors]) -> bool:
    classes = stage.target.classes
    return len(errors) == len(classes) and all(errors[c.name].right for c in classes)
