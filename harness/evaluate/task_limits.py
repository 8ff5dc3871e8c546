"""What a task declares, or leaves out, that weakens the verdicts on its candidates."""

from __future__ import annotations

from harness.tasks.target import Target
from harness.verdict import Finding


def findings(target: Target) -> list[Finding]:
    """Return what a person has to accept of the task's reference and of its inputs."""
    flags: list[Finding] = []
    if target.by_baseline:
        flags.append(Finding(rule="reference-baseline", severity="flag", detail=(
            "the task has no reference: expected values are the baseline's own, so an error of the "
            "baseline counts as correct")))
    recorded = {name for entry in target.classes for name in entry.data or {}}
    if recorded:
        flags.append(Finding(rule="recorded-values", severity="flag", detail=(
            f"{', '.join(sorted(recorded))} always has recorded values, so a candidate that is "
            "correct only for these passes")))
    if narrow := [arg.name for arg in target.args if arg.shape is not None
                  and arg.kind != "output" and "float" not in arg.dtype and arg.high is None
                  and arg.structure is None and arg.name not in recorded]:
        flags.append(Finding(rule="no-range", severity="flag", detail=(
            f"{', '.join(narrow)}: no range is declared, so the values are 0 and 1 in every check: "
            "declare low and high in the task")))
    return flags


def weaker_checks(target: Target) -> list[str]:
    """Return a note on each declaration of the task that weakens a check."""
    notes = []
    if target.stochastic:
        notes.append("the task is stochastic: different results of two runs are not an error")
    if not target.float64:
        notes.append("the reference has no float64 form: expected values have the reference's own "
                     "precision")
    if target.precision is not None:
        notes.append(f"the task allows {target.precision} for float32")
    return notes
