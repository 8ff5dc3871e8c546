"""Repairs: what computes something else goes back to its worker, with the hypothesis kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from engine.judge.candidate import CandidateTree
from engine.repository.patches.patch import Patch
from engine.task import RepairRequest, Task
from harness.formats.text import plain
from harness.verdict import Verdict

ATTEMPTS = 3
BACKENDS = ("cli",)
"""Those that can be told what is wrong. A search has shown its result to be right already."""
FAULTS = {"fault": ("build", "crash", "tests"),
          "benchmark-fault": ("build", "exit", "crash", "timeout")}
"""How checks, a benchmark or tests fail on a candidate that may only need to be mended, by the kind
of evidence."""


def mendable(verdict: Verdict) -> bool:
    """Tell whether a candidate failed as something does that is meant well: it is wrong, or does
    not build or pass its tests.
    """
    if verdict.valid:
        return not verdict.correct
    return any(one.detail in FAULTS.get(one.kind, ()) for one in verdict.evidence)


def again(task: Task, entry: CandidateTree, tree: Path, complaint: str,
          left_out: str = "", tries: int = 0) -> Task | None:
    """Return the task of mending an entry, whose files lie in `tree`; None after the last attempt,
    or where its worker cannot. What was `left_out` of its change may be what is wrong; `tries` of
    mending this very entry have brought nothing.
    """
    left = f". Left out of your change, and not in this folder: {left_out}" if left_out else ""
    vain = f". Attempts to mend it that brought nothing: {tries}" if tries else ""
    attempt = 1 + tries + (0 if task.repair is None else task.repair.attempt)
    if attempt > ATTEMPTS or task.backend not in BACKENDS:
        return None
    return msgspec.structs.replace(task, repair=RepairRequest(
        attempt=attempt, of=ATTEMPTS, candidate=entry.id, tree=str(tree),
        changed=changed(entry.patch), deleted=deleted(entry.patch),
        complaint=plain(complaint, 1000) + left + vain))


def changed(patch: Patch) -> tuple[str, ...]:
    """Return the files that a patch changes or makes."""
    return tuple(file.path for file in patch.files if not file.is_deleted)


def deleted(patch: Patch) -> tuple[str, ...]:
    """Return the files that are gone after a patch."""
    return tuple(file.old_path for file in patch.files if file.old_path and
                 (file.is_deleted or file.old_path != file.path))


def put_back(mend: RepairRequest, worktree: Path) -> None:
    """Make a fresh worktree what the candidate had made of it."""
    for path in mend.deleted:
        (worktree / path).unlink(missing_ok=True)
    for path in mend.changed:
        (worktree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(mend.tree) / path, worktree / path)
