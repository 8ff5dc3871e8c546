"""Submitted changes that repeat a candidate that a person has rejected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine.journal.read import Reader
from engine.journal.records import Campaign, Candidate
from engine.manifest import load
from engine.repository.campaign_repo import CANDIDATES
from engine.repository.clone import Clone
from engine.repository.patches import patch as patches
from harness.errors import KoptError, Refused

Change = frozenset[tuple[str, str]]
"""Of each file its path and its changed lines, without their places."""


def ask_again(candidate: str) -> str:
    """Return how a person has a candidate that was rejected judged again."""
    return f"kopt submit --from {candidate[:12]} measures it again, and you are asked again"


def refusal(reader: Reader, chosen: Campaign, data: bytes, *, is_patch: bool) -> Refused | None:
    """Return the refusal of a patch or source that repeats a rejected candidate, else None."""
    change = _change(data) if is_patch else None
    for rejected, reason in _rejected(reader, chosen):
        for form in _forms(reader, rejected):
            same = change == _change(_patch(chosen, form)) if change is not None else \
                data == _source(chosen, form)
            if same:
                return Refused(f"this is the same change as candidate {rejected.id[:12]}, "
                               f"which was {reason}", fix=ask_again(rejected.id))
    return None


def _rejected(reader: Reader, chosen: Campaign) -> Iterator[tuple[Candidate, str]]:
    """Yield the candidates that a person has rejected last, with the reason."""
    newest = {decision.candidate: decision for decision in reversed(reader.decisions(chosen.id))}
    for candidate in reader.candidates(chosen.id, states=("closed",)):
        decision = newest.get(candidate.id)
        if decision is not None and decision.is_rejection:
            yield candidate, decision.reason


def _forms(reader: Reader, candidate: Candidate) -> Iterator[Candidate]:
    """Yield a candidate and those that it is another form of."""
    yield candidate
    while candidate.form_of:
        candidate = reader.candidate(candidate.form_of, candidate.campaign)
        yield candidate


def _change(data: bytes) -> Change | None:
    try:
        files = patches.parse(data).files
    except KoptError:
        return None
    return frozenset((file.path, _changed_lines(file.text)) for file in files)


def _changed_lines(section: str) -> str:
    head, mark, body = section.partition("\n@@ ")
    lines = f"@@ {body}".splitlines(keepends=True) if mark else []
    return "".join(line for line in lines if line[0] in "+-") or head


def _patch(chosen: Campaign, candidate: Candidate) -> bytes:
    try:
        return (Path(chosen.path) / candidate.patch_path).read_bytes()
    except OSError:
        return b""


def _source(chosen: Campaign, candidate: Candidate) -> bytes | None:
    """Return the kernel's source as a candidate has it, None if that is not known."""
    source = load.load(Path(chosen.path) / "manifest.yaml").kernel_source
    clone = Clone(Path(chosen.path) / "repo.git")
    tree = clone.git.find(f"{CANDIDATES}/{candidate.id}")
    try:
        return clone.read(tree, source) if tree and source else None
    except KoptError:
        return None
