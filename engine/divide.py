"""Splits: what some config classes gain by and others lose by is taken where it gains alone."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.candidates import Entry
from engine.split.languages import splits
from engine.workers.base import Divide, Task
from harness.verdict import Verdict

BACKEND = "split"


def diverges(verdict: Verdict) -> bool:
    """Tell whether a right candidate is faster in some class for sure, and slower in another."""
    outcomes = {row.outcome for row in verdict.rows}
    return verdict.valid and verdict.correct and {"faster", "slower"} <= outcomes


def again(task: Task, entry: Entry, tree: Path, verdict: Verdict, source: str) -> Task | None:
    """Return the task of taking an entry, whose files lie in `tree`, for the classes it gains in.

    None where classes do not diverge, where it changes more than the file `source`, or where it
    is a split itself.
    """
    files = [file.path for file in entry.patch.files]
    if task.divide is not None or task.backend == BACKEND or not diverges(verdict) \
            or files != [source] or not splits(source):
        return None
    by_outcome: dict[str, list[str]] = {"faster": [], "slower": [], "tie": []}
    for row in verdict.rows:
        by_outcome.setdefault(row.outcome, []).append(row.config_class)
    return msgspec.structs.replace(task, backend=BACKEND, trials=0, mend=None, divide=Divide(
        candidate=entry.id, tree=str(tree), faster=tuple(by_outcome["faster"]),
        slower=tuple(by_outcome["slower"]), others=tuple(by_outcome["tie"])),
        hypothesis=f"{task.hypothesis}; where it gains alone")
