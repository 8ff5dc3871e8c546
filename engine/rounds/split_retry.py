"""The retry of a divergent candidate: split it, so that only the classes it speeds up use it."""

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


def next_split(task: Task, entry: CandidateTree, tree: Path, verdict: Verdict, source: str, *,
          split: bool = True, tries: int = 0, complaint: str = "") -> Task | None:
    """Return the task of splitting a candidate whose files are in `tree`, or None.

    The backend `split` goes first, if the manifest has it (`split`) and the candidate changes the
    file `source` alone, then the candidate's own agent; `tries` of them have been used up. None
    also if the classes do not diverge, or if the candidate is a split itself.
    """
    if task.split is not None or task.backend == BACKEND or not needs_split(verdict):
        return None
    by_kopt = split and [file.path for file in entry.patch.files] == [source] and splits(source)
    backends = ([BACKEND] if by_kopt else []) + ([AGENT] if task.backend == AGENT else [])
    if tries >= len(backends):
        return None
    by_outcome: dict[str, list[str]] = {"faster": [], "slower": [], "tie": []}
    for row in verdict.rows:
        by_outcome.setdefault(row.outcome, []).append(row.config_class)
    request = SplitRequest(
        candidate=entry.id, tree=str(tree), faster=tuple(by_outcome["faster"]),
        slower=tuple(by_outcome["slower"]), others=tuple(by_outcome["tie"]),
        changed=repair.changed(entry.patch), deleted=repair.deleted(entry.patch),
        reason=plain(complaint, 1000))
    return msgspec.structs.replace(
        task, backend=backends[tries], trials=0, repair=None, split=request,
        hypothesis=f"{task.hypothesis}; where it gains alone",
        scope=" and ".join(by_outcome["faster"]))
