"""performance_trend.md: a line a round, and one a config class where something was kept; it only
ever grows.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.history.campaign_view import JournalView
from engine.journal.records import DecisionRow, Round
from engine.markdown import line, micros, table
from engine.records import class_history, measured, round_summary
from engine.records.class_history import ClassStep

HEAD = ("round", "status", "what", "best candidate", "against the last best",
        "best against baseline", "finding")
STATUS = {"baseline": "BASELINE", "keep": "ACCEPTED"}
CLASS = "class"
Entry = tuple[float, int, tuple[str, ...]]
"""When it was known, of which round it is, and a line of the table."""


def page(story: JournalView) -> str:
    """Return performance_trend.md."""
    ended = {round.n: round.ended_at for round in story.history.rounds
             if round.ended_at is not None}
    entries = [(ended[round.n], round.n, _row(story, round)) for round in story.history.rounds
               if round.n in ended]
    for step in class_history.steps(story.history):
        if step.round in ended:
            entries += _classes(step, ended[step.round])
    lines = sorted(entries, key=lambda entry: entry[:2])
    return f"# {line(story.campaign)}\n\n" + table(HEAD, (row for _, _, row in lines))


def _classes(step: ClassStep, ended_at: float) -> Iterator[Entry]:
    """Yield a line a class, below that of its round; what a person kept later comes later."""
    for mark in step.marks:
        yield max(step.at, ended_at), step.round, (
            str(step.round), CLASS, *class_history.cells(mark), mark.outcome)


def _row(story: JournalView, round: Round) -> tuple[str, ...]:
    status = STATUS.get(round.outcome or "", f"ROLLBACK ({round.outcome})")
    found = round_summary.shown(story, round)
    if found is None:
        return (str(round.n), status, "", "", "", round_summary.best(round), round.summary)
    told, verdict = found
    if told is None:
        return (str(round.n), status, "the code as it was", micros(verdict.latency_us), "",
                round_summary.best(round), round.summary)
    candidate = story.history.candidates.get(told.candidate)
    return (str(round.n), status, candidate.hypothesis if candidate else "",
            micros(verdict.latency_us), measured.change(verdict) + _after(story, told),
            round_summary.best(round),
            told.reason)


def _after(story: JournalView, told: DecisionRow) -> str:
    """Say so where a keep stands on another of its round: its gain is what it adds to that."""
    first = any(keep.round == told.round and keep.at < told.at for keep in story.history.keeps)
    return "; on top of what its round had kept before" if told.kind == "keep" and first else ""
