"""The format command: run on a candidate's tree, it makes the formatted form that is kept."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import msgspec

from engine.campaign.setup import Setup
from engine.judge import candidate
from engine.judge.candidate import CandidateTree
from engine.repository.change import Change, narrowed
from engine.repository.patches.hygiene import violations
from harness.errors import InputError
from harness.isolation import guard
from harness.isolation.guard import Confine, Limits

LIMITS = Limits(wall_s=120.0, memory_bytes=4 << 30)


def run(setup: Setup, entry: CandidateTree, command: str, *, round: int,
        stop: threading.Event | None = None) -> CandidateTree:
    """Run the format command on a candidate's tree; return the formatted candidate.

    Raises InputError if the command fails.
    """
    base, repo = entry.candidate.base_commit, setup.repo
    with tempfile.TemporaryDirectory(dir=setup.folder.scratch("format")) as folder:
        tree = Path(folder) / "tree"
        repo.checkout_tree(entry.tree, tree)
        outcome = guard.run(["sh", "-c", command], cwd=tree, cancel=stop,
                            env=guard.clean_env(home=Path(folder)), limits=LIMITS,
                            confine=Confine(writable=(folder,), cards=False))
        if not outcome.ok:
            raise InputError(outcome.describe(LIMITS))
        change = _allowed(setup, entry, repo.capture(tree, base, setup.edit))
    if not change:
        raise InputError("it reverts the whole change")
    return candidate.make(setup, change, base, round=round, slot=entry.candidate.slot,
                          hypothesis=entry.candidate.hypothesis,
                          bottleneck=entry.candidate.bottleneck)


def _allowed(setup: Setup, entry: CandidateTree, change: Change) -> Change:
    """Undo the formatter's changes to files that the candidate neither changed nor may change."""
    own = {path for file in entry.patch.files for path in (file.old_path, file.new_path)}
    forbidden = {violation.path for violation in
                 violations(change.patch, setup.edit, setup.frozen)} - own
    return narrowed(setup.repo, change, msgspec.structs.replace(
        change.patch, files=tuple(file for file in change.patch.files
                                  if file.path not in forbidden)))
