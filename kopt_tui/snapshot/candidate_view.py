"""From the journal to what is known about one candidate, its patch included."""

from __future__ import annotations

import hashlib
from pathlib import Path

from engine.journal.read import Reader
from engine.journal.records import Candidate
from harness.errors import InputError
from kopt_tui.snapshot.cache import SnapshotCache, harmless, harmless_lines
from kopt_tui.snapshot.snapshot import CandidateView, JudgedVerdict, WaitingRow

PATCH_BYTES = 512 * 1024
VERDICTS = 20
RECENT = 500


def candidate_view(reader: Reader, memory: SnapshotCache, workspace: Path, campaign: str,
                   candidate: str, waiting: tuple[WaitingRow, ...]) -> CandidateView:
    """Return everything that is known about a candidate, named by the start of its id."""
    try:
        one = reader.candidate(candidate, campaign)
    except InputError as error:
        return CandidateView(campaign=campaign, candidate=None, missing=str(error))
    text, note = memory.once(("patch", one.patch_sha256, one.patch_path),
                             lambda: _patch(reader, workspace, one))
    decisions = [d for d in reader.decisions(campaign, limit=RECENT) if d.candidate == one.id]
    if not decisions:
        decisions = memory.once(("history", campaign, one.id, one.state), lambda: [
            d for d in reader.decisions(campaign) if d.candidate == one.id])
    return CandidateView(
        campaign=campaign, candidate=harmless(one), patch=text, patch_note=note,
        verdicts=tuple(JudgedVerdict(v.id, v.purpose, v.at, memory.body(v))
                       for v in reader.verdicts(campaign, candidate=one.id, limit=VERDICTS)),
        decisions=tuple(map(harmless, decisions)),
        controls=tuple(harmless(c) for c in reader.controls(campaign) if c.candidate == one.id),
        waiting=next((w for w in waiting
                      if w.candidate == one.id and w.campaign == campaign), None),
    )


def _patch(reader: Reader, workspace: Path, one: Candidate) -> tuple[str, str]:
    """Return the patch as text, and why it is not whole or not there."""
    campaign = reader.campaign(one.campaign)
    path = workspace / (campaign.path if campaign else one.campaign) / one.patch_path
    try:
        with path.open("rb") as file:
            data = file.read(PATCH_BYTES + 1)
    except OSError as error:
        return "", f"the patch cannot be read: {error.strerror}: {path}"
    if len(data) > PATCH_BYTES:
        return harmless_lines(data[:PATCH_BYTES]), f"first {PATCH_BYTES // 1024} KiB of {path}"
    if hashlib.sha256(data).hexdigest() != one.patch_sha256:
        return harmless_lines(data), "the file's hash is not the recorded one: it was changed"
    return harmless_lines(data), ""
