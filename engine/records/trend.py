"""performance_trend.md: a line for each round, and for each config class after a keep.

The file only ever grows.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.history.campaign_view import JournalView
from engine.journal.records import DecisionRow, Round
from engine.markdown import line, table
from engine.records import class_history, measured, round_summary
from engine.records.class_history import ClassStep
from harness.formats import quantities

HEAD = ("round", "status", "what", "best candidate", "against the last best",
        "best against baseline", "finding")
STATUS = {"baseline": "BASELINE", "keep": "ACCEPTED"}
CLASS = "class"
TrendLine = tuple[float, int, tuple[str, ...]]
"""When the line was known, its round, and its cells."""


def page(view: JournalView) -> str:
    """Return performance_trend.md."""
    rounds = view.history.rounds
    ended = {round.n: round.ended_at for round in rounds if round.ended_at is not None}
    lines = [(ended[round.n], round.n, _row(view, round)) for round in rounds if round.n in ended]
    for step in class_history.steps(view.history):
        if step.round in ended:
            lines += _class_lines(step, ended[step.round])
    lines.sort(key=lambda trend_line: trend_line[:2])
    rows = table(HEAD, (cells for _, _, cells in lines))
    return f"# {line(view.campaign)}\n\n{rows}"


def _class_lines(step: ClassStep, ended_at: float) -> Iterator[TrendLine]:
    """Yield a line for each class below its round's; an approval after the round comes later."""
    for own in step.classes:
        yield max(step.at, ended_at), step.round, (
            str(step.round), CLASS, *class_history.cells(own), own.outcome)


def _row(view: JournalView, round: Round) -> tuple[str, ...]:
    status = STATUS.get(round.outcome or "", f"ROLLBACK ({round.outcome})")
    shown = round_summary.shown(view, round)
    best = round_summary.best(round)
    if shown is None:
        return (str(round.n), status, "", "", "", best, round.summary)
    decision, verdict = shown
    latency = quantities.latency_us(verdict.latency_us)
    if decision is None:
        return (str(round.n), status, "the code as it was", latency, "", best, round.summary)
    candidate = view.history.candidates.get(decision.candidate)
    return (str(round.n), status, candidate.hypothesis if candidate else "", latency,
            measured.change(verdict) + _on_top(view, decision), best, decision.reason)


def _on_top(view: JournalView, decision: DecisionRow) -> str:
    """Return a note for a keep on top of another keep of its round: its gain comes on top too."""
    earlier = any(keep.round == decision.round and keep.at < decision.at
                  for keep in view.history.keeps)
    return "; on top of what its round had kept before" \
        if decision.kind == "keep" and earlier else ""
