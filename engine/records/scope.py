"""What rounds, slots and candidates are about: all config classes or some."""

from __future__ import annotations

from collections.abc import Iterator

from engine.history.campaign_view import JournalView
from engine.journal.records import DecisionRow, Round
from engine.markdown import line
from engine.records import measured
from engine.task import GLOBAL


def of_round(story: JournalView, round: Round, *, later: bool = False) -> Iterator[str]:
    """Yield what a round was planned to be about, and what its kept splits are for; also those
    that were kept after it was over, if `later`.
    """
    yield f"- scope: {line(round.scope)}"
    for keep in story.history.keeps:
        if keep.round == round.n and keep.commit in story.splits and (
                later or measured.within(keep, round)):
            told = "; ".join(split.summary for split in story.splits[keep.commit])
            yield f"- kept for: {line(told)}, in {keep.commit[:12]}"


def beside(scope: str, round: Round | None) -> str:
    """Return what a slot or candidate adds to its hypothesis, where it is about less than its
    round, or more.
    """
    return f"; scope: {scope}" if scope and (round is None or scope != round.scope) else ""


def of_candidate(story: JournalView, candidate: str, round: Round) -> str:
    """Return what a candidate adds to its hypothesis in a round."""
    return beside(story.scopes.get(candidate, ""), round)


def of_keep(story: JournalView, keep: DecisionRow) -> str:
    """Return which classes a kept change is for: those of its split, its slot or its round."""
    if found := story.splits.get(keep.commit):
        return "; ".join(split.conditions for split in found)
    return story.scopes.get(keep.candidate) or next(
        (r.scope for r in story.history.rounds if r.n == keep.round), GLOBAL)
