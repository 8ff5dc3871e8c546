"""Candidates on their way: from a captured patch to an entry that can be judged."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import msgspec

from engine.campaign.setup import Setup
from engine.journal.records import Candidate
from engine.judge.judge import Ruling
from engine.repository.patches import patch as patches
from engine.repository.patches.hygiene import Violation, violations
from engine.repository.patches.patch import Patch
from harness.errors import InputError
from harness.formats.text import plain
from harness.verdict import Verdict


class CandidateTree(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its patch and the tree that the patch makes of its base."""

    candidate: Candidate
    patch: Patch
    tree: str
    violations: tuple[Violation, ...] = ()

    @property
    def id(self) -> str:
        return self.candidate.id


def make(setup: Setup, patch: Patch, base_commit: str, *, round: int, slot: str, hypothesis: str,
         bottleneck: str) -> CandidateTree:
    """Store a patch and return its entry; raises InputError if it does not apply to its base."""
    applied = setup.repo.apply(base_commit, patch)
    data = applied.patch.data
    identity = patches.candidate_id(applied.base_tree, applied.patch)
    path = setup.folder.patches / f"{identity}.patch"
    path.write_bytes(data)
    candidate = Candidate(
        campaign=setup.id, id=identity, round=round, slot=slot, base_commit=base_commit,
        base_tree=applied.base_tree, patch_path=str(path.relative_to(setup.folder.path)),
        patch_sha256=hashlib.sha256(data).hexdigest(), hypothesis=plain(hypothesis, 500),
        bottleneck=plain(bottleneck, 500), state="captured", created_at=time.time())
    return _entry(setup, candidate, applied.patch, applied.tree)


def load(setup: Setup, candidate: Candidate) -> CandidateTree:
    """Read a recorded candidate's patch back; raises InputError if the file is not what it was."""
    path = setup.folder.path / candidate.patch_path
    data = _read(path, candidate.patch_sha256)
    patch = patches.parse(data, where=path.name)
    return _entry(setup, candidate, patch, setup.repo.apply(candidate.base_commit, patch).tree)


def rebase(setup: Setup, entry: CandidateTree, new_base: str, round: int) -> CandidateTree | None:
    """Return the same change as a new candidate on another base, None if it is there already.

    Raises InputError on a conflict.
    """
    applied = setup.repo.rebase(entry.patch, new_base)
    if not applied.patch:
        return None
    return make(setup, applied.patch, new_base, round=round, slot=entry.candidate.slot,
                hypothesis=entry.candidate.hypothesis, bottleneck=entry.candidate.bottleneck)


def _entry(setup: Setup, candidate: Candidate, patch: Patch, tree: str) -> CandidateTree:
    """Return an entry with what its patch must not do.

    A benchmark of the project's own lies in the project, and may read any file of it: there, no
    change outside of `edit` is let through.
    """
    found = violations(patch, setup.edit, setup.frozen)
    if setup.command is not None:
        found = tuple(msgspec.structs.replace(one, kind="frozen") for one in found)
    return CandidateTree(candidate=candidate, patch=patch, tree=tree, violations=found)


def _read(path: Path, sha256: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"the patch is gone: {error.strerror}", where=str(path)) from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise InputError("the patch is not the one that was recorded", where=str(path))
    return data


class JudgedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """An entry, its recorded verdict and what was ruled on it."""

    entry: CandidateTree
    verdict: Verdict
    verdict_id: int
    ruling: Ruling

    @property
    def good(self) -> bool:
        return self.ruling.kind in ("keep", "ask")
