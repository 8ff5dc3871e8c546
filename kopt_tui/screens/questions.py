"""The questions themselves: what each request is about, in words, and when it is over."""

from __future__ import annotations

from kopt_tui.control import Ask
from kopt_tui.screens.confirm import Question
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import CampaignRow, Snapshot, WaitingRow


def about_candidate(ask: Ask, waiting: WaitingRow) -> Question:
    """Return the question before an approval or a rejection."""
    name = phrases.short(ask.candidate, 12)
    facts = (
        ("candidate", ask.candidate), ("campaign", waiting.campaign),
        ("claim", waiting.hypothesis), ("measured", phrases.speedup(waiting.speedup) or "nothing"),
        ("asks since", f"{phrases.clock(waiting.since)}: {waiting.why}"),
        ("on base", phrases.short(waiting.base_commit, 12)),
    )
    approve = ask.verb == "approve"
    return Question(
        title=f"Approve candidate {name}?" if approve else f"Reject candidate {name}?",
        facts=tuple((key, text) for key, text in facts if text),
        safe="Let it wait", act=f"Approve {name}" if approve else f"Reject {name}",
        over=lambda snapshot: _decided(snapshot, ask),
    )


def about_campaign(ask: Ask, row: CampaignRow) -> Question:
    """Return the question before a campaign is paused, resumed or stopped."""
    effect = {
        "pause": "workers are stopped where they are; resume goes on",
        "resume": "the round goes on where it was paused",
        "stop": "the running step ends, then the campaign; what was recorded stays",
    }.get(ask.verb, "")
    return Question(
        title=f"{ask.verb.capitalize()} campaign {row.id}?",
        facts=(("campaign", row.id), ("state", f"{row.said}, round {row.round}"),
               ("effect", effect)),
        safe="Leave it as it is", act=f"{ask.verb.capitalize()} it",
        over=lambda snapshot: _ended(snapshot, ask),
    )


def about_leaving(campaigns: str) -> Question:
    """Return the question before a dashboard is left that has the engine inside."""
    return Question(
        title="Quit and stop the campaign?",
        facts=(("running", campaigns or "the engine of this process"),
               ("effect", "the engine runs inside this process: it is stopped in order, and "
                          "`kopt run` resumes it; nothing recorded is lost")),
        safe="Stay", act="Stop it and quit")


def _decided(snapshot: Snapshot, ask: Ask) -> str:
    for one in snapshot.waiting:
        if one.campaign == ask.campaign and one.candidate == ask.candidate:
            moved = one.base_commit != ask.expected_base or one.verdict != ask.expected_verdict
            return "it was measured again meanwhile: look at it once more" if moved else ""
    return "it was decided meanwhile: it waits no longer"


def _ended(snapshot: Snapshot, ask: Ask) -> str:
    row = snapshot.row(ask.campaign)
    if row is None or row.state not in ("running", "paused"):
        return f"the campaign is {row.state if row else 'gone'} now"
    return ""
