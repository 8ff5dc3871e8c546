"""Reads everything that the journal and the patch file say of one candidate."""

from __future__ import annotations

import hashlib
from pathlib import Path

from engine.journal.read import Reader
from engine.journal.records import Candidate
from engine.judge.recorded_values import verdict_or_none
from harness.errors import InputError
from kopt_tui.snapshot.cache import SnapshotCache, harmless, harmless_lines
from kopt_tui.snapshot.snapshot import CandidateView, JudgedVerdict, WaitingRow

PATCH_BYTES = 512 * 1024
VERDICTS = 20
RECENT = 500


def candidate_view(reader: Reader, cache: SnapshotCache, workspace: Path, campaign: str,
                   candidate: str, waiting: tuple[WaitingRow, ...]) -> CandidateView:
    """Return the view that the dashboard draws, of a candidate named by the start of its id."""
    try:
        row = reader.candidate(candidate, campaign)
    except InputError as error:
        return CandidateView(campaign=campaign, candidate=None, missing=str(error))
    patch, note = cache.once(("patch", row.patch_sha256, row.patch_path),
                             lambda: _patch(reader, workspace, row))
    decisions = [decision for decision in reader.decisions(campaign, limit=RECENT)
                 if decision.candidate == row.id]
    if not decisions:
        decisions = cache.once(("history", campaign, row.id, row.state), lambda: [
            decision for decision in reader.decisions(campaign) if decision.candidate == row.id])
    return CandidateView(
        campaign=campaign, candidate=harmless(row), patch=patch, patch_note=note,
        verdicts=tuple(JudgedVerdict(verdict.id, verdict.purpose, verdict.at,
                                     verdict.incumbent_tree, cache.verdict(verdict))
                       for verdict in reader.verdicts(campaign, candidate=row.id, limit=VERDICTS)),
        decisions=tuple(map(harmless, decisions)),
        controls=tuple(harmless(control) for control in reader.controls(campaign)
                       if control.candidate == row.id),
        waiting=next((entry for entry in waiting
                      if entry.candidate == row.id and entry.campaign == campaign), None),
    )


def whole_view(reader: Reader, candidate: Candidate) -> CandidateView:
    """Return the view that `kopt show` prints: all verdicts and decisions, as recorded."""
    verdicts = reader.verdicts(candidate.campaign, candidate=candidate.id)
    return CandidateView(
        campaign=candidate.campaign, candidate=candidate,
        verdicts=tuple(JudgedVerdict(verdict.id, verdict.purpose, verdict.at,
                                     verdict.incumbent_tree, verdict_or_none(verdict))
                       for verdict in verdicts),
        decisions=tuple(decision for decision in reader.decisions(candidate.campaign)
                        if decision.candidate == candidate.id))


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
        return harmless_lines(data), "the file was changed: its hash is not the recorded one"
    return harmless_lines(data), ""
