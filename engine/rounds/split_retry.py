"""Splits: what some config classes gain by and others lose by is taken where it gains alone."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.judge.candidate import CandidateTree
from engine.judge.judge import needs_split
from engine.rounds import repair
from engine.split.languages.detect import splits
from engine.task import SplitRequest, Task
from harness.formats.text import plain
from harness.verdict import Verdict

BACKEND, AGENT = "split", "cli"


def again(task: Task, entry: CandidateTree, tree: Path, verdict: Verdict, source: str, *,
          split: bool = True, tries: int = 0, complaint: str = "") -> Task | None:
    """Return the task of taking an entry, whose files lie in `tree`, for the classes it gains in.

    It is kopt's own (`split`), where the entry changes the file `source` alone, and then that of
    the agent that the entry is of. None after so many `tries`, where classes do not diverge, or
    where it is a split itself.
    """
    if task.split is not None or task.backend == BACKEND or not needs_split(verdict):
        return None
    own = split and [file.path for file in entry.patch.files] == [source] and splits(source)
    backends = ([BACKEND] if own else []) + ([AGENT] if task.backend == AGENT else [])
    if tries >= len(backends):
        return None
    by_outcome: dict[str, list[str]] = {"faster": [], "slower": [], "tie": []}
    for row in verdict.rows:
        by_outcome.setdefault(row.outcome, []).append(row.config_class)
    wanted = SplitRequest(
        candidate=entry.id, tree=str(tree), faster=tuple(by_outcome["faster"]),
        slower=tuple(by_outcome["slower"]), others=tuple(by_outcome["tie"]),
        changed=repair.changed(entry.patch), deleted=repair.deleted(entry.patch),
        reason=plain(complaint, 1000))
    return msgspec.structs.replace(
        task, backend=backends[tries], trials=0, repair=None, split=wanted,
        hypothesis=f"{task.hypothesis}; where it gains alone",
        scope=" and ".join(by_outcome["faster"]))
