"""Whether the check itself is worth anything: answers that take no work must fail it."""

from __future__ import annotations

from harness.case import Case, Errors
from harness.correctness.tolerance import Tolerance
from harness.verdict import Finding


class TrivialAnswers:
    """Collects the fakes that pass every case of one class."""

    def __init__(self, config_class: str) -> None:
        self._class = config_class
        self._passes: dict[tuple[int, str], bool] = {}

    def note(self, case: Case, errors: Errors, budget: Tolerance) -> None:
        """Hold a case's fakes against what its candidate was allowed."""
        for control in case.controls:
            allowed = max(errors.allowed or 0.0, budget.floor_of(case, control.output))
            key = control.output, control.name
            passes = control.relative is not None and control.relative <= allowed
            self._passes[key] = passes and self._passes.get(key, True)

    def findings(self) -> list[Finding]:
        names = dict.fromkeys(name for (_, name), passes in self._passes.items() if passes)
        return [Finding(rule="weak-check", severity="flag", detail=(
            f"class {self._class}: {', '.join(names)} would pass the check as well"))] \
            if names else []
