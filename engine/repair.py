"""Repairs: what computes something else goes back to its worker, with the hypothesis kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from engine.candidates import Entry
from engine.workers.base import Mend, Task
from harness.text import plain
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


def again(task: Task, entry: Entry, tree: Path, complaint: str) -> Task | None:
    """Return the task of mending an entry, whose files lie in `tree`; None after the last attempt,
    or where its worker cannot.
    """
    attempt = 1 if task.mend is None else task.mend.attempt + 1
    if attempt > ATTEMPTS or task.backend not in BACKENDS:
        return None
    files = entry.patch.files
    return msgspec.structs.replace(task, mend=Mend(
        attempt=attempt, of=ATTEMPTS, candidate=entry.id, tree=str(tree),
        changed=tuple(file.path for file in files if not file.is_deleted),
        deleted=tuple(file.old_path for file in files if file.old_path and
                      (file.is_deleted or file.old_path != file.path)),
        complaint=plain(complaint, 1000)))


def put_back(mend: Mend, worktree: Path) -> None:
    """Make a fresh worktree what the candidate had made of it."""
    for path in mend.deleted:
        (worktree / path).unlink(missing_ok=True)
    for path in mend.changed:
        (worktree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(mend.tree) / path, worktree / path)
