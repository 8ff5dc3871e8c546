"""performance.md: the baseline and what was kept; each stop's summary follows."""

from __future__ import annotations

from collections.abc import Iterator

from engine.history.campaign_view import JournalView
from engine.history.kernel_splits import KernelSplit
from engine.journal.records import DecisionRow
from engine.judge.recorded_values import verdict_of
from engine.records import measured
from engine.records.templates import render_page
from engine.task import GLOBAL
from harness.verdict import Verdict


def page(view: JournalView) -> str:
    """Return performance.md."""
    first = view.history.baseline
    return render_page("performance", view=view, rows=list(_rows(view)), kernel_rows=_kernel_rows,
                       baseline=None if first is None else verdict_of(first),
                       classes_of_best=measured.classes_of_best(view.history))


def _rows(view: JournalView) -> Iterator[tuple[str, ...]]:
    past = view.history
    first = past.baseline
    if first is not None:
        yield _row(view, first.at, past.base, "baseline", "all", 1, verdict_of(first), "",
                   "unmodified code")
    for keep in past.keeps:
        if keep.verdict in past.verdicts:
            verdict = verdict_of(past.verdicts[keep.verdict])
            status = "rolled back" if keep.commit in past.undone else "keep"
            yield _row(view, keep.at, keep.commit, status, _scope(view, keep), keep.round, verdict,
                       measured.change(verdict), view.why(keep))


def _row(view: JournalView, at: float, commit: str, status: str, scope: str, n: int,
         verdict: Verdict, change: str, reason: str) -> tuple[str, ...]:
    return (view.stamp(at), commit[:12], status, view.measured_by, scope,
            measured.kernel(view, n, verdict), *measured.latencies(verdict, view.history.score),
            change, reason)


def _scope(view: JournalView, keep: DecisionRow) -> str:
    """Return the classes that a kept change is for: those of its split, its slot or its round."""
    if splits := view.splits.get(keep.commit):
        return "; ".join(split.conditions for split in splits)
    return view.scopes.get(keep.candidate) or next(
        (round.scope for round in view.history.rounds if round.n == keep.round), GLOBAL)


def _kernel_rows(split: KernelSplit) -> list[tuple[str, ...]]:
    return [(f"{'old' if own.is_default else 'new'}: {own.kernel}", own.condition,
             own.serves or ("all others" if own.is_default else "")) for own in split.kernels]
