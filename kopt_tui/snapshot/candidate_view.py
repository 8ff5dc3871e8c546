"""Reads everything that the journal and the patch file say of one candidate."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.journal.decoded import patch_review
from engine.journal.decoded.recorded import verdict_or_none
from engine.journal.judged_rows import DecisionRow, VerdictRow
from engine.journal.read import Reader
from engine.journal.records import Candidate
from engine.verify import reference_lines
from harness.errors import InputError
from harness.verdict import Verdict
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.harmless import harmless, harmless_lines, harmless_verdict
from kopt_tui.snapshot.snapshot import AttemptRef, CandidateView, WaitingRow
from kopt_tui.snapshot.verdict_words import JudgedVerdict

PATCH_BYTES = 512 * 1024
VERDICTS = 20


def candidate_view(reader: Reader, workspace: Path, campaign: str, candidate: str,
                   waiting: tuple[WaitingRow, ...]) -> CandidateView:
    """Return the view that the dashboard draws, of a candidate named by the start of its id."""
    try:
        row = reader.candidate(candidate, campaign)
    except InputError as error:
        return CandidateView(campaign=campaign, candidate=None, missing=str(error))
    patch, note = _patch(reader, workspace, row)
    verdicts = reader.verdicts(campaign, candidate=row.id, limit=VERDICTS)
    decisions = reader.decisions(campaign, candidate=row.id)
    return CandidateView(
        campaign=campaign, candidate=harmless(row), patch=patch, patch_note=note,
        verdicts=_judged(reader, campaign, verdicts, harmless_verdict),
        decisions=tuple(map(harmless, decisions)),
        controls=tuple(harmless(control) for control in reader.controls(campaign)
                       if control.candidate == row.id),
        waiting=next((entry for entry in waiting if entry.candidate.id == row.id
                      and entry.candidate.campaign == campaign), None),
        attempt=attempt_of(reader, row), again=_measure_again(decisions),
        review=harmless(patch_review.of_candidate(reader, campaign, row.id)),
    )


def attempt_of(reader: Reader, candidate: Candidate) -> AttemptRef:
    """Return the attempt that made a candidate or, for a form of another one, made that one."""
    while candidate.form_of:
        candidate = reader.candidate(candidate.form_of, candidate.campaign)
    task = reader.task(candidate.campaign, candidate.id)
    return AttemptRef(campaign=candidate.campaign, round=candidate.round, slot=candidate.slot,
                      number=task.attempt if task is not None else 0)


def whole_view(reader: Reader, candidate: Candidate) -> CandidateView:
    """Return the view that `kopt show` prints: all verdicts and decisions, as recorded."""
    verdicts = reader.verdicts(candidate.campaign, candidate=candidate.id)
    decisions = reader.decisions(candidate.campaign, candidate=candidate.id)
    return CandidateView(
        campaign=candidate.campaign, candidate=candidate,
        verdicts=_judged(reader, candidate.campaign, verdicts, verdict_or_none),
        decisions=tuple(decisions), again=_measure_again(decisions),
        review=patch_review.of_candidate(reader, candidate.campaign, candidate.id))


def _measure_again(decisions: Sequence[DecisionRow]) -> str:
    """Return how to measure a near gain, or what a person rejected, again; "" for any other."""
    newest = next(iter(decisions), None)
    return phrases.measure_again(newest.candidate) if newest and (
        newest.near_gain or newest.is_rejection) else ""


def _judged(reader: Reader, campaign: str, rows: Sequence[VerdictRow],
            decode: Callable[[VerdictRow], Verdict | None]) -> tuple[JudgedVerdict, ...]:
    """Return the verdicts; on a module, with the lines of compilers and libraries beside it."""
    references = reference_lines.read(reader, campaign)
    verdicts = ((row, decode(row)) for row in rows)
    return tuple(JudgedVerdict(
        row.id, row.purpose, row.at, row.incumbent_tree,
        verdict and reference_lines.with_lines(verdict, references)) for row, verdict in verdicts)


def _patch(reader: Reader, workspace: Path, candidate: Candidate) -> tuple[str, str]:
    """Return the patch as text, and why it is incomplete or absent."""
    campaign = reader.campaign(candidate.campaign)
    path = workspace / (campaign.path if campaign else candidate.campaign) / candidate.patch_path
    try:
        with path.open("rb") as file:
            data = file.read(PATCH_BYTES + 1)
    except OSError as error:
        return "", f"the patch cannot be read: {error.strerror}: {path}"
    if len(data) > PATCH_BYTES:
        return harmless_lines(data[:PATCH_BYTES]), f"first {PATCH_BYTES // 1024} KiB of {path}"
    if hashlib.sha256(data).hexdigest() != candidate.patch_sha256:
        return harmless_lines(data), "the file has changed: its hash differs from the recorded one"
    return harmless_lines(data), ""
