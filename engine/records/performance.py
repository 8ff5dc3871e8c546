"""performance.md: the baseline and what was kept, then a summary of each stop of the campaign.

performance_trend.md, which only ever grows, has a line for each round, for each decision that was
made after its round, and for each config class after a keep.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from engine.history.campaign_view import JournalView
from engine.history.kernel_splits import KernelSplit
from engine.journal.decoded.recorded import verdict_of
from engine.journal.judged_rows import DecisionRow
from engine.journal.records import Round
from engine.markdown import line, table
from engine.records import class_history, measured, round_summary
from engine.records.templates import render_page
from engine.task import GLOBAL
from harness.formats import quantities
from harness.verdict import Verdict

TREND = ("round", "status", "what", "best candidate", "against the last best",
        "best against baseline", "finding")
STATUS = {"baseline": "BASELINE", "keep": "ACCEPTED", "waiting": "WAITING"}
LATE = {"keep": "ACCEPTED", "reject": "REJECTED", "tie": "ROLLBACK (tie)",
        "regression": "ROLLBACK (regression)"}
"""Decisions that get a line of their own if they are made after their round.

ROLLBACK is the word of the round log's format for a candidate that was not kept.
"""
CLASS = "class"


def page(view: JournalView) -> str:
    """Return performance.md."""
    first = view.history.baseline
    return render_page("performance", view=view, rows=list(_rows(view)), kernel_rows=_kernel_rows,
                       baseline=None if first is None else verdict_of(first),
                       reference_notes=measured.reference_notes(view),
                       classes_of_best=measured.classes_of_best(view.history),
                       waiting=measured.waiting(view.history),
                       classes_of_tip=measured.classes_of_provisional(view.history))


def _rows(view: JournalView) -> Iterator[tuple[str, ...]]:
    past = view.history
    first = past.baseline
    if first is not None:
        yield _row(view, first.at, past.base, "baseline", "all", 1, verdict_of(first), "",
                   "unmodified code")
    for keep in past.keeps:
        if (verdict := past.verdict_of(keep)) is not None:
            status = "rolled back" if keep.commit in past.undone else "keep"
            yield _row(view, keep.at, keep.commit, status, _scope(view, keep), keep.round, verdict,
                       measured.change(verdict), view.why(keep))


def _row(view: JournalView, at: float, commit: str, status: str, scope: str, n: int,
         verdict: Verdict, change: str, reason: str) -> tuple[str, ...]:
    return (view.stamp(at), commit[:12], status, view.measured_by, scope,
            measured.kernel(view, n, verdict), *measured.latencies(verdict, view.history.score),
            change, reason)


def _scope(view: JournalView, keep: DecisionRow) -> str:
    """Return the conditions of a kept split, else the classes that a kept change made faster."""
    if splits := view.splits.get(keep.commit):
        return "; ".join(split.conditions for split in splits)
    shown = view.history.attribution(keep)
    return shown.scope if shown is not None else GLOBAL


def _kernel_rows(split: KernelSplit) -> list[tuple[str, ...]]:
    return [(f"{'old' if kernel.is_default else 'new'}: {kernel.kernel}", kernel.condition,
             kernel.serves or ("all others" if kernel.is_default else ""))
            for kernel in split.kernels]


def trend(view: JournalView) -> str:
    """Return performance_trend.md."""
    ended = {round.n: round.ended_at for round in view.history.rounds
             if round.ended_at is not None}
    lines = [(ended[round.n], round.n, _trend_row(view, round)) for round in view.history.rounds
             if round.n in ended]
    for decision in view.history.decisions:
        n = view.history.round_of(decision)
        if decision.kind in LATE and ended.get(n, math.inf) < decision.at:
            lines.append((decision.at, n, _late_row(view, decision, n)))
    for step in class_history.steps(view.history):
        if step.round in ended:
            at = max(step.at, ended[step.round])  # an approval after the round comes later
            lines += [(at, step.round, (str(step.round), CLASS, *class_history.cells(measurement),
                                        measurement.outcome)) for measurement in step.classes]
    lines.sort(key=lambda trend_line: trend_line[:2])
    rows = table(TREND, (cells for _, _, cells in lines))
    return f"# {line(view.campaign)}\n\n{rows}"


def _trend_row(view: JournalView, round: Round) -> tuple[str, ...]:
    word = "ROLLBACK" if view.history.decisions_of(round.n) else round_summary.NO_CANDIDATE
    status = STATUS.get(round.outcome or "", f"{word} ({round.outcome})")
    shown = round_summary.shown(view, round)
    best = round_summary.best(round)
    if shown is None:
        return (str(round.n), status, "", "", "", best, round.summary)
    decision, verdict = shown
    latency = quantities.latency_us(verdict.latency_us)
    if decision is None:
        return (str(round.n), status, "the unmodified code", latency, "", best, round.summary)
    candidate = view.history.candidates.get(decision.candidate)
    return (str(round.n), status, candidate.hypothesis if candidate else "", latency,
            measured.change(verdict) + _on_top(view, decision), best, decision.reason)


def _late_row(view: JournalView, decision: DecisionRow, n: int) -> tuple[str, ...]:
    """Return the line of a decision that was made on a candidate after its round."""
    candidate = view.history.candidates.get(decision.candidate)
    verdict = view.history.verdict_of(decision)
    return (str(n), LATE[decision.kind], candidate.hypothesis if candidate else "",
            quantities.latency_us(verdict.latency_us) if verdict else "",
            measured.change(verdict) if verdict else "", "",
            f"after the round, by {decision.actor}: {decision.reason}")


def _on_top(view: JournalView, decision: DecisionRow) -> str:
    """Return a note for a keep that rests on an earlier keep of its round: the gains add up."""
    earlier = any(keep.round == decision.round and keep.at < decision.at
                  for keep in view.history.keeps)
    return "; in addition to the earlier keeps of its round" \
        if decision.kind == "keep" and earlier else ""
