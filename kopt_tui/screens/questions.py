"""The questions before each request: what it is about, and when it no longer applies."""

from __future__ import annotations

from kopt_tui.control import ControlRequest
from kopt_tui.screens.confirm import Question
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import CampaignRow, Snapshot, WaitingRow

EFFECTS = {
    "pause": "the campaign pauses as soon as this round ends; resume starts the next round",
    "resume": "the next round starts",
    "stop": "the campaign ends after the current step; everything recorded is kept",
}


def about_candidate(request: ControlRequest, waiting: WaitingRow) -> Question:
    """Return the question before an approval or a rejection."""
    name = phrases.short(request.candidate, 12)
    facts = (
        ("candidate", request.candidate), ("campaign", waiting.campaign),
        ("claim", waiting.hypothesis), ("measured", phrases.speedup(waiting.speedup) or "nothing"),
        ("waits since", f"{phrases.clock(waiting.since)}: {waiting.why}"),
        ("on base", phrases.short(waiting.base_commit, 12)),
    )
    verb = "Approve" if request.verb == "approve" else "Reject"
    return Question(
        title=f"{verb} candidate {name}?", facts=tuple((key, text) for key, text in facts if text),
        safe="Let it wait", act=f"{verb} {name}",
        expired=lambda snapshot: _why_decided(snapshot, request),
    )


def about_campaign(request: ControlRequest, row: CampaignRow) -> Question:
    """Return the question before a campaign is paused, resumed or stopped."""
    verb = request.verb.capitalize()
    return Question(
        title=f"{verb} campaign {row.id}?",
        facts=(("campaign", row.id), ("state", f"{row.status}, round {row.round}"),
               ("effect", EFFECTS.get(request.verb, ""))),
        safe="Leave it as it is", act=f"{verb} it",
        expired=lambda snapshot: _why_ended(snapshot, request),
    )


def about_leaving(campaigns: str) -> Question:
    """Return the question before leaving a dashboard whose process runs the engine."""
    return Question(
        title="Quit and stop the campaign?",
        facts=(("running", campaigns or "the engine of this process"),
               ("effect", "the engine runs inside this process and stops with it; `kopt run` "
                          "resumes the campaign, and nothing recorded is lost")),
        safe="Stay", act="Stop it and quit")


def _why_decided(snapshot: Snapshot, request: ControlRequest) -> str:
    for row in snapshot.waiting:
        if row.campaign == request.campaign and row.candidate == request.candidate:
            changed = (row.base_commit != request.expected_base
                       or row.verdict != request.expected_verdict)
            return "it was measured again: check the new verdict first" if changed else ""
    return "it was decided by another request and no longer waits"


def _why_ended(snapshot: Snapshot, request: ControlRequest) -> str:
    row = snapshot.row(request.campaign)
    if row is None or row.state not in ("running", "paused"):
        return f"the campaign is {row.state if row else 'gone'} now"
    return ""
