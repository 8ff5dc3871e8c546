"""A candidate under judgement: its record, tree, patch and, once judged, its ruling."""

from __future__ import annotations

import difflib
import hashlib
import tempfile
import threading
import time
from pathlib import Path

import msgspec

from engine.campaign.setup import Setup
from engine.journal.records import Candidate
from engine.judge.judge import Ruling
from engine.repository.clone import Change, between, narrowed
from engine.repository.patches import patch as patches
from engine.repository.patches.hygiene import Violation, violations
from engine.repository.patches.patch import Patch
from harness.errors import InputError
from harness.formats import shell_command
from harness.formats.text import one_line
from harness.isolation import guard
from harness.isolation.confinement import Confine
from harness.isolation.process_outcome import Limits
from harness.search.space import knobs
from harness.verdict import Verdict


class CandidateTree(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its tree, and its patch against the base."""

    candidate: Candidate
    patch: Patch
    tree: str
    violations: tuple[Violation, ...] = ()

    @property
    def id(self) -> str:
        return self.candidate.id


def make(setup: Setup, change: Change, base_commit: str, *, round: int, slot: str, hypothesis: str,
         bottleneck: str) -> CandidateTree:
    """Store a change's tree, and its patch for people; return the candidate."""
    data = change.patch.data
    identity = patches.candidate_id(change.base_tree, change.patch)
    setup.repo.store_candidate(identity, change.tree)
    path = setup.folder.patches / f"{identity}.patch"
    path.write_bytes(data)
    candidate = Candidate(
        campaign=setup.id, id=identity, round=round, slot=slot, base_commit=base_commit,
        base_tree=change.base_tree, patch_path=str(path.relative_to(setup.folder.path)),
        patch_sha256=hashlib.sha256(data).hexdigest(), state="captured", created_at=time.time(),
        # one line each: a worker's words must not add lines to a commit's message
        hypothesis=one_line(hypothesis, 500), bottleneck=one_line(bottleneck, 500))
    return _checked(setup, candidate, change)


def load(setup: Setup, candidate: Candidate) -> CandidateTree:
    """Open a recorded candidate; raises InputError if its tree differs from the recorded one."""
    repo = setup.repo
    if tree := repo.candidate_tree(candidate.id):
        change = between(repo, candidate.base_tree, tree)
        if hashlib.sha256(change.patch.data).hexdigest() != candidate.patch_sha256:
            raise InputError("its tree differs from the recorded one",
                             where=f"candidate {candidate.id}")
        return _checked(setup, candidate, change)
    path = setup.folder.path / candidate.patch_path  # captured before trees were kept
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"the patch cannot be read: {error.strerror}", where=str(path)) from None
    if hashlib.sha256(data).hexdigest() != candidate.patch_sha256:
        raise InputError("the patch differs from the recorded one", where=str(path))
    patch = patches.parse(data, where=path.name)
    return _checked(setup, candidate, repo.apply(candidate.base_commit, patch))


def rebase(setup: Setup, entry: CandidateTree, new_base: str) -> CandidateTree | None:
    """Return the same change on another base, None if the base already contains it.

    It counts for the round and the slot that made the change. If the patch does not apply but only
    sets knobs, they are set in the new base. Raises InputError if that fails too.
    """
    try:
        change = setup.repo.apply(new_base, entry.patch)
    except InputError:
        if (patch := _knob_patch(setup, entry, new_base)) is None:
            raise
        change = setup.repo.apply(new_base, patch)
    if not change:
        return None
    return _of_same_work(setup, entry, change, new_base)


def _of_same_work(setup: Setup, entry: CandidateTree, change: Change, base: str) -> CandidateTree:
    """Return another change by the slot, in the round and for the hypothesis of a candidate."""
    work = entry.candidate
    return make(setup, change, base, round=work.round, slot=work.slot, hypothesis=work.hypothesis,
                bottleneck=work.bottleneck)


def _knob_patch(setup: Setup, entry: CandidateTree, new_base: str) -> Patch | None:
    """Return the patch that sets a candidate's knobs in a new base, or None.

    There is none if the candidate does more than set knobs, or if the new base has changed the same
    knobs.
    """
    language, paths = setup.target.language, [file.path for file in entry.patch.files]
    if len(paths) != 1:
        return None
    try:
        old, new, other = (setup.repo.read(tree, paths[0]).decode() for tree in (
            entry.candidate.base_tree, entry.tree, new_base))
        old_values, new_values, base_values = (
            knobs.current(knobs.find(text, language=language)) for text in (old, new, other))
        changes = {name: value for name, value in new_values.items()
                   if old_values.get(name) != value}
        if knobs.apply(old, changes, language=language) != new or \
                any(base_values.get(name) != old_values.get(name) for name in changes):
            return None
        moved = knobs.apply(other, changes, language=language)
    except (InputError, UnicodeDecodeError):
        return None
    return patches.parse("".join(difflib.unified_diff(
        other.splitlines(keepends=True), moved.splitlines(keepends=True),
        f"a/{paths[0]}", f"b/{paths[0]}")))


def _checked(setup: Setup, candidate: Candidate, change: Change) -> CandidateTree:
    """Return a candidate with the violations of its patch.

    A command target's benchmark is part of the project and may read any of its files: there, a
    change outside of `edit` is as bad as one of a frozen file.
    """
    broken = violations(change.patch, setup.edit, setup.frozen)
    if setup.command is not None:
        broken = tuple(msgspec.structs.replace(violation, kind="frozen") for violation in broken)
    return CandidateTree(candidate=candidate, patch=change.patch, tree=change.tree,
                         violations=broken)


class JudgedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its recorded verdict and the ruling on it."""

    entry: CandidateTree
    verdict: Verdict
    verdict_id: int
    ruling: Ruling

    @property
    def is_gain(self) -> bool:
        """Whether it may be kept, by itself or by a person's approval."""
        return self.ruling.kind in ("keep", "ask")

    def on(self, commit: str) -> JudgedCandidate:
        """Return this candidate with another base commit, whose tree is the same."""
        candidate = msgspec.structs.replace(self.entry.candidate, base_commit=commit)
        return msgspec.structs.replace(self, entry=msgspec.structs.replace(
            self.entry, candidate=candidate))


FORMAT_MEMORY_BYTES = 4 << 30


def formatted(setup: Setup, entry: CandidateTree, command: str, *,
              stop: threading.Event | None = None) -> CandidateTree:
    """Return what the format command makes of a candidate; raises InputError if it fails."""
    base, repo = entry.candidate.base_commit, setup.repo
    with tempfile.TemporaryDirectory(dir=setup.folder.scratch("format")) as folder:
        tree = Path(folder) / "tree"
        repo.checkout_tree(entry.tree, tree)
        variables, argv = shell_command.split(command)
        limits = Limits(wall_s=setup.manifest.limits.format_s, memory_bytes=FORMAT_MEMORY_BYTES)
        outcome = guard.run(argv, cwd=tree, cancel=stop, limits=limits,
                            env=guard.clean_env(variables, home=Path(folder)),
                            confine=Confine(writable=(folder,), cards=False))
        if not outcome.ok:
            raise InputError(outcome.describe(limits))
        change = _allowed(setup, entry, repo.capture(tree, base, setup.edit))
    if not change:
        raise InputError("it reverts the whole change")
    return _of_same_work(setup, entry, change, base)


def _allowed(setup: Setup, entry: CandidateTree, change: Change) -> Change:
    """Undo the formatter's changes to files that the candidate neither changed nor may change."""
    paths = {path for file in entry.patch.files for path in (file.old_path, file.new_path)}
    forbidden = {violation.path for violation in
                 violations(change.patch, setup.edit, setup.frozen)} - paths
    return narrowed(setup.repo, change, msgspec.structs.replace(
        change.patch, files=tuple(file for file in change.patch.files
                                  if file.path not in forbidden)))
