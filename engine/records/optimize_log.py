"""optimize.md: what a campaign is about, then its rounds and stops as they came.

The file only grows, except for its one Final Report, which is that of the last stop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import itemgetter

from msgspec.structs import replace

from engine.history import change_summary, lessons
from engine.history.campaign_view import JournalView
from engine.history.history import CampaignHistory
from engine.journal.decoded.recorded import verdict_of
from engine.journal.judged_rows import DecisionRow
from engine.records import measured, present_limits, round_summary, transfer_audit
from engine.records.templates import render_page
from harness.formats import quantities
from harness.formats.text import plain
from harness.verdict import Verdict

NEXT_STEPS = 3
LISTED = 20
"""At most this many ideas that did not help are listed."""


def page(view: JournalView) -> str:
    """Return optimize.md; its Final Report has the campaign's state at the last stop."""
    past = view.history
    ended = {round.n: round.ended_at for round in past.rounds if round.ended_at is not None}
    entries: list[tuple[float, str, object]] = [
        *((at, "tips", tips) for at, tips in view.tips),
        *((round.ended_at, "round", round) for round in past.rounds if round.ended_at is not None),
        *((decision.at, "late", decision) for decision in _late(past, ended)),
        *((row.at, "end to end", row) for row in view.end_to_end),
        *((at, "not run", record) for at, record in view.not_run),
        *((at, "limits", change) for at, change in view.limits),
        *((rollback.at, "rollback", rollback) for rollback in past.rollbacks),
        *((at, "earlier stop", stop) for at, stop in view.stops[:-1]),
        *((at, "stop", stop) for at, stop in view.stops[-1:])]
    entries.sort(key=itemgetter(0))
    first = past.baseline
    return render_page(
        "optimize_log", view=view, entries=entries, summary=round_summary, gain=_gain,
        baseline=None if first is None else verdict_of(first), verdict_of=verdict_of,
        describe=change_summary.describe, end_to_end_result=end_to_end_result, ideas=ideas,
        lessons=lessons.of,
        ineffective=_ineffective, most_listed=LISTED, audit_of=transfer_audit.of)


def end_to_end_result(verdict: Verdict) -> str:
    """Return the whole program's gain, or why it is not known."""
    if verdict.speedup is None:
        return f"not measured: {verdict.rejected_reason or 'it was not timed'}"
    is_slower = (verdict.speedup_high or 1.0) < 1
    return measured.speedup(verdict) + (
        ": the program is slower, although the kernel is faster: roll the kernel back, or do not "
        "merge it" if is_slower else "")


def ideas(view: JournalView, past: CampaignHistory) -> list[str]:
    """Return what to try next: untried directions of the last review, then bottlenecks."""
    last = past.attempts[-1].n if past.attempts else 1
    directions = [review.directions for n, review in view.reviews.items() if n <= last][-1:]
    tried = {candidate.hypothesis for candidate in past.candidates.values()}
    steps = [text for texts in directions for text in texts
             if not any(text in hypothesis for hypothesis in tried)]
    return [*steps, *present_limits.directions(present_limits.of_best(past))][:NEXT_STEPS]


def near_gains(past: CampaignHistory) -> list[str]:
    """Return the near gains on the best, each with the command that measures it again."""
    return [f"measure {near.candidate[:12]} of round {past.candidates[near.candidate].round} again "
            f"(near gain of {quantities.percent(near.near_gain, 1)}): kopt submit --from "
            f"{near.candidate[:12]}" for near in past.near_gains()][-NEXT_STEPS:]


def _late(past: CampaignHistory, ended: Mapping[int, float | None]) -> list[DecisionRow]:
    """Return the decisions of people, and those of the engine after the end of their round.

    Consecutive runner-up decisions on one gain are merged.
    """
    late: list[DecisionRow] = []
    place: dict[str, int] = {}
    for decision in past.decisions:
        if decision.actor == "engine" and (ended.get(decision.round) or math.inf) >= decision.at:
            continue
        before = late[place[decision.candidate]] if decision.candidate in place else None
        if before is not None and before.kind == decision.kind == "runner-up":
            late[place[decision.candidate]] = replace(before,
                                                      reason=f"{before.reason}; {decision.reason}")
            continue
        place[decision.candidate] = len(late)
        late.append(decision)
    return late


def _gain(past: CampaignHistory, keep: DecisionRow) -> str:
    row = past.row_of(keep)
    return quantities.ratio(row.speedup) if row is not None and row.speedup else "kept"


def _ineffective(past: CampaignHistory) -> list[tuple[str, str]]:
    """Return the ideas that did not help and why, each once, the newest last."""
    reasons: dict[str, str] = {}
    for decision in past.decisions:
        candidate = past.candidates.get(decision.candidate)
        if candidate is not None and decision.kind in ("tie", "regression", "reject"):
            reasons.pop(candidate.hypothesis, None)  # so that the newest comes last
            reasons[candidate.hypothesis] = f"{decision.kind} in round {candidate.round}: " \
                                            f"{decision.reason}"
    return [(plain(idea, 200), plain(reason, 200)) for idea, reason in reasons.items()]
