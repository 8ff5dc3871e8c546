"""The correctness half of a verdict: every class on every kind of input, against the oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from harness.kernel import Kernel
from harness.lock import DeviceLock
from harness.oracle import Case, Errors, Oracle
from harness.peer import Peer, PeerDied, PeerError
from harness.stage import Stage
from harness.verdict import Finding


class Failed(Exception):
    """The candidate failed in a way that ends its evaluation; the text is the reason."""


class Check:
    """Checks one candidate; collects its worst errors by class and what it found on the way."""

    def __init__(self, stage: Stage, oracle: Oracle,
                 progress: Callable[[str, str, float | None], None]) -> None:
        self.stage, self.oracle = stage, oracle
        self._progress = progress
        self.cases: dict[str, Case] = {}
        """The first case of each class; the one that is timed."""
        self.errors: dict[str, Errors] = {}
        self.findings: list[Finding] = []

    def run(self, candidate: Kernel, held: DeviceLock | None) -> bool:
        """Tell whether the candidate is right on every class. Raises Failed when it did not run."""
        target = self.stage.target
        todo = [(c, d) for c in target.classes for d in self.stage.settings.distributions]
        where = "load"
        try:
            with self.stage.runners.start(candidate, lock=held, yields=self.stage.yields) as runner:
                for index, (config_class, distribution) in enumerate(todo):
                    where = f"class {config_class.name}"
                    self._progress("checking", where, index / len(todo))
                    case = self.oracle.make(config_class, distribution)
                    if not self._one(case, runner):
                        break
        except (PeerError, PeerDied) as error:
            raise Failed(f"{where}: {error.what}") from None
        return all_correct(self.stage, self.errors)

    def _one(self, case: Case, runner: Peer) -> bool:
        self._note_weak(case)
        answer = runner.ask("call", case=case.id, tensors=case.tensors)
        errors = self.oracle.judge(case, answer.get("outputs"))
        name = case.config_class
        self.cases.setdefault(name, case)
        self.errors[name] = errors.worse(self.errors.get(name))
        if self.cases[name] is not case:
            self.oracle.drop(case)
        return within(self.stage, case, errors)

    def _note_weak(self, case: Case) -> None:
        if case.weak and not any(f.rule == "weak-check" for f in self.findings):
            names = ", ".join(case.weak)
            self.findings.append(Finding(
                rule="weak-check", severity="flag",
                detail=f"class {case.config_class}: {names} would pass the check as well"))

    def recheck(self, case: Case, written: object) -> None:
        """Judge what the timed calls left behind: it must be the right answer still."""
        if any(tensor["role"] == "inout" for tensor in case.tensors):
            return  # repeated calls on the same buffer have no expected value
        try:
            errors = self.oracle.judge(case, written)
        except PeerError as error:
            raise Failed(f"after timing: {error.what}") from None
        if not within(self.stage, case, errors):
            detail = f"class {case.config_class}: the timed calls left a wrong answer"
            self.findings.append(Finding(rule="after-timing", severity="reject", detail=detail))
            raise Failed(detail)


def within(stage: Stage, case: Case, errors: Errors) -> bool:
    target = stage.target
    return errors.within(target.tolerance_of(target.config_class(case.config_class)))


def all_correct(stage: Stage, errors: Mapping[str, Errors]) -> bool:
    target = stage.target
    return len(errors) == len(target.classes) and all(
        errors[c.name].within(target.tolerance_of(c)) for c in target.classes)
