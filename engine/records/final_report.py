"""The Final Report below a Stop Summary: the campaign's result, and how far to trust it."""

from __future__ import annotations

from collections.abc import Iterator

from engine.history import lessons
from engine.history.campaign_view import JournalView, StopRecord
from engine.history.history import CampaignHistory
from engine.markdown import line, numbered
from engine.records import measured, performance, round_summary, transfer_audit
from harness.formats import quantities

NEXT_STEPS = 3
LISTED = 20
"""Ideas that did not help, at most."""


def lines(view: JournalView, at: float, stop: StopRecord) -> Iterator[str]:
    """Yield the Final Report of a stop, with the campaign's state at that time."""
    past = view.history.until(at)
    kept = {keep.round for keep in past.standing}
    attempts = past.attempts
    yield from ("## Final Report", "", f"- result: {line(measured.metrics(past))}",
                f"- from {past.base} to {past.best}",
                f"- rounds: {len(attempts)}, of which "
                f"{sum(round.n in kept for round in attempts)} brought a lasting gain and "
                f"{sum(round.n not in kept for round in attempts)} did not",
                f"- ended because: {line(stop.outcome)}", "")
    if best := measured.classes_of_best(past):
        yield from ("### Baseline and best, class by class", "", best)
    yield from _effective(view, past)
    yield from _ineffective(past)
    yield from next_steps(view, past, "### What to try next")
    if learned := lessons.of(past):
        yield from ("### Lessons for the next campaign", "",
                    *(f"- {line(lesson.text)}" for lesson in learned), "")
    yield from transfer_audit.of(past).lines("### Real-training applicability audit")


def next_steps(view: JournalView, past: CampaignHistory, heading: str) -> Iterator[str]:
    """Yield a section on what to try next, if there is anything."""
    if texts := ideas(view, past):
        yield from (heading, "", *numbered([line(idea) for idea in texts]), "")


def ideas(view: JournalView, past: CampaignHistory) -> list[str]:
    """Return what to try next: untried directions of the last review, then bottlenecks."""
    last = past.attempts[-1].n if past.attempts else 1
    directions = [review.directions for n, review in view.reviews.items() if n <= last][-1:]
    tried = {candidate.hypothesis for candidate in past.candidates.values()}
    steps = [text for texts in directions for text in texts
             if not any(text in hypothesis for hypothesis in tried)]
    rounds = [n for n in view.bottlenecks if n <= last and view.bottlenecks[n]]
    steps += [f"{bottleneck.limiter}"
              f"{' in ' + bottleneck.config_class if bottleneck.config_class else ''}"
              f"{_at(bottleneck.metric, bottleneck.value)}: {bottleneck.advice}"
              for n in rounds[-1:] for bottleneck in view.bottlenecks[n]]
    return steps[:NEXT_STEPS]


def _at(metric: str, value: float | None) -> str:
    return "" if value is None else f", at {round_summary.value(metric, value)}"


def _effective(view: JournalView, past: CampaignHistory) -> Iterator[str]:
    yield from ("### What worked", "")
    for keep in past.standing:
        row = past.verdicts.get(keep.verdict or 0)
        gain = quantities.ratio(row.speedup) if row is not None and row.speedup else "kept"
        yield f"- {gain}: {performance.why(view, keep)} (rounds/round-{keep.round}/summary.md)"
    yield from ([] if past.standing else ["- nothing"])
    yield ""


def _ineffective(past: CampaignHistory) -> Iterator[str]:
    """Yield the ideas that did not help, each once, the newest last."""
    reasons: dict[str, str] = {}
    for decision in past.decisions:
        candidate = past.candidates.get(decision.candidate)
        if candidate is not None and decision.kind in ("tie", "regression", "reject"):
            reasons.pop(candidate.hypothesis, None)  # so that the newest comes last
            reasons[candidate.hypothesis] = f"{decision.kind} in round {decision.round}: " \
                                            f"{decision.reason}"
    if not reasons:
        return
    yield from ("### What did not help", "")
    if len(reasons) > LISTED:
        yield f"- {len(reasons) - LISTED} older ideas are in the rounds above"
    yield from (f"- {line(idea, 200)}: {line(reason, 200)}"
                for idea, reason in list(reasons.items())[-LISTED:])
    yield ""
