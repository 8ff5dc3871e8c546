"""Repairs: a wrong or broken candidate goes back to its worker with the same hypothesis."""

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
REPAIR_BACKENDS = ("cli",)
"""Backends that can read a complaint. A search has already shown its result to be correct."""
FAULTS = {"fault": ("build", "crash", "tests"),
          "benchmark-fault": ("build", "exit", "crash", "timeout")}
"""By kind of evidence, the faults of checks, benchmarks and tests that a repair may remove."""


def is_repairable(verdict: Verdict) -> bool:
    """Return whether an honest mistake explains the verdict: wrong results, a failed build or test.
    """
    if verdict.valid:
        return not verdict.correct
    return any(fact.detail in FAULTS.get(fact.kind, ()) for fact in verdict.evidence)


def next_repair(task: Task, entry: CandidateTree, tree: Path, complaint: str,
          left_out: str = "", tries: int = 0) -> Task | None:
    """Return the task of repairing a candidate whose files are in `tree`.

    None after the last attempt, or if its worker cannot repair. The complaint also names the files
    that were `left_out` of the change, a likely cause, and how many `tries` at this very candidate
    produced nothing.
    """
    attempt = 1 + tries + (0 if task.repair is None else task.repair.attempt)
    if attempt > ATTEMPTS or task.backend not in REPAIR_BACKENDS:
        return None
    missing = f". Left out of your change, and not in this folder: {left_out}" if left_out else ""
    failed = f". Earlier attempts to repair it that produced nothing: {tries}" if tries else ""
    return msgspec.structs.replace(task, repair=RepairRequest(
        attempt=attempt, of=ATTEMPTS, candidate=entry.id, tree=str(tree),
        changed=changed(entry.patch), deleted=deleted(entry.patch),
        complaint=plain(complaint, 1000) + missing + failed))


def changed(patch: Patch) -> tuple[str, ...]:
    """Return the files that a patch changes or creates."""
    return tuple(file.path for file in patch.files if not file.is_deleted)


def deleted(patch: Patch) -> tuple[str, ...]:
    """Return the files that a patch removes, those it renames among them."""
    return tuple(file.old_path for file in patch.files if file.old_path and
                 (file.is_deleted or file.old_path != file.path))


def restore(request: RepairRequest, worktree: Path) -> None:
    """Write the candidate's changes into a fresh worktree."""
    for path in request.deleted:
        (worktree / path).unlink(missing_ok=True)
    for path in request.changed:
        (worktree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(request.tree) / path, worktree / path)
