"""The Final Report below a Stop Summary: what the campaign came to, and what to believe of it."""

from __future__ import annotations

from collections.abc import Iterator

from engine.history import lessons
from engine.history.campaign_view import JournalView, StopRecord
from engine.history.history import CampaignHistory
from engine.markdown import line
from engine.records import measured, performance, round_summary, transfer_audit

NEXT = 3
"""Recommended next steps."""
LISTED = 20


def lines(story: JournalView, at: float, told: StopRecord) -> Iterator[str]:
    """Yield the Final Report of a stop, as things were then."""
    past = story.history.until(at)
    kept = {keep.round for keep in past.standing}
    attempts = past.attempts
    yield from ("## Final Report", "", f"- result: {line(measured.metrics(past))}",
                f"- from {past.base} to {past.best}",
                f"- rounds: {len(attempts)}, of which {sum(r.n in kept for r in attempts)} kept "
                f"something and {sum(r.n not in kept for r in attempts)} were rolled back",
                f"- ended because: {line(told.reason)}", "")
    if best := measured.of_classes(past):
        yield from ("### Baseline and best, class by class", "", best)
    yield from _effective(story, past)
    yield from _ineffective(past)
    yield from steps(story, past, "### What to try next")
    if learned := lessons.of(past):
        yield from ("### Lessons for the next campaign", "",
                    *(f"- {line(lesson.text)}" for lesson in learned), "")
    yield from transfer_audit.of(past).lines("### Real-training applicability audit")


def _effective(story: JournalView, past: CampaignHistory) -> Iterator[str]:
    yield from ("### What worked", "")
    for keep in past.standing:
        row = past.verdicts.get(keep.verdict or 0)
        gained = f"{row.speedup:.2f}x" if row is not None and row.speedup else "kept"
        yield f"- {gained}: {performance.why(story, keep)} (rounds/round-{keep.round}/summary.md)"
    yield from ([] if past.standing else ["- nothing"])
    yield ""


def _ineffective(past: CampaignHistory) -> Iterator[str]:
    """Yield what was tried and did not help, the same idea once, the newest last."""
    seen: dict[str, str] = {}
    for decision in past.decisions:
        candidate = past.candidates.get(decision.candidate)
        if candidate is not None and decision.kind in ("tie", "regression", "reject"):
            seen.pop(candidate.hypothesis, None)
            seen[candidate.hypothesis] = f"{decision.kind} in round {decision.round}: " \
                                         f"{decision.reason}"
    if not seen:
        return
    yield from ("### What did not help", "")
    if len(seen) > LISTED:
        yield f"- {len(seen) - LISTED} older ideas are in the rounds above"
    yield from (f"- {line(idea, 200)}: {line(came, 200)}"
                for idea, came in list(seen.items())[-LISTED:])
    yield ""


def steps(story: JournalView, past: CampaignHistory, heading: str) -> Iterator[str]:
    """Yield a section on what to try next."""
    if found := ideas(story, past):
        yield from (heading, "", *measured.numbered([line(idea) for idea in found]), "")


def ideas(story: JournalView, past: CampaignHistory) -> list[str]:
    """Return what to try next: directions that a review named last, then what limits the best."""
    last = past.attempts[-1].n if past.attempts else 1
    named = [told.directions for n, told in story.reviews.items() if n <= last][-1:]
    tried = {candidate.hypothesis for candidate in past.candidates.values()}
    found = [text for texts in named for text in texts
             if not any(text in hypothesis for hypothesis in tried)]
    known = [n for n in story.bottlenecks if n <= last and story.bottlenecks[n]]
    found += [f"{b.limiter}{' in ' + b.config_class if b.config_class else ''}"
              f"{', at ' + round_summary.value(b.metric, b.value) if b.value is not None else ''}: "
              f"{b.advice}" for n in known[-1:] for b in story.bottlenecks[n]]
    return found[:NEXT]
