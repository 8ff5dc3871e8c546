"""performance.md: the baseline and what was kept; each stop's summary follows."""

from __future__ import annotations

from collections.abc import Iterator

from engine.history.campaign_view import JournalView
from engine.history.kernel_splits import SplitKernel
from engine.journal.records import DecisionRow
from engine.judge.recorded_values import verdict_of
from engine.markdown import line, table
from engine.records import measured, stop_summary
from engine.task import GLOBAL
from harness.verdict import Verdict

HEAD = """# {campaign}

Only the baseline and kept gains are listed here; every attempt is in logs/optimize.md.

"""
GAINS = ("date", "commit", "status", "benchmark command", "config class or condition", "kernel",
         "call time", "GPU time", "against the last best", "why")
SPLIT_KERNELS = ("kernel", "condition", "config classes")


def page(view: JournalView) -> str:
    """Return performance.md."""
    head = HEAD.format(campaign=line(view.campaign)) + table(GAINS, _rows(view))
    stops = (stop_summary.summary(view, at, stop) for at, stop in view.stops)
    return "\n".join([head, *_tables(view), *stops])


def why(view: JournalView, keep: DecisionRow) -> str:
    """Return a kept change's hypothesis, the bottleneck that it attacks, and who kept it."""
    candidate = view.history.candidates.get(keep.candidate)
    if candidate is None:
        return line(keep.reason)
    bottleneck = f" (against {candidate.bottleneck})" if candidate.bottleneck else ""
    by = "" if keep.actor == "engine" else f"; kept by {keep.actor}"
    return line(f"{candidate.hypothesis}{bottleneck}{by}")


def _rows(view: JournalView) -> Iterator[tuple[str, ...]]:
    past = view.history
    first = measured.baseline(past)
    if first is not None:
        yield _row(view, first.at, past.base, "baseline", "all", 1, verdict_of(first), "",
                   "unmodified code")
    for keep in past.keeps:
        if keep.verdict in past.verdicts:
            verdict = verdict_of(past.verdicts[keep.verdict])
            status = "rolled back" if keep.commit in past.undone else "keep"
            yield _row(view, keep.at, keep.commit, status, _scope(view, keep), keep.round, verdict,
                       measured.change(verdict), why(view, keep))


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


def _tables(view: JournalView) -> Iterator[str]:
    first = measured.baseline(view.history)
    if first is not None:
        yield f"## Baseline by config class\n\n{measured.classes_of_baseline(verdict_of(first))}"
    if best := measured.classes_of_best(view.history):
        yield f"## Best by config class\n\n{line(measured.metrics(view.history))}\n\n{best}"
    for keep in view.history.keeps:
        for split in view.splits.get(keep.commit, ()):
            yield f"## Kernel split of {line(split.entry)} in {keep.commit[:12]}\n\n" \
                + table(SPLIT_KERNELS, map(_kernel_row, split.kernels))


def _kernel_row(kernel: SplitKernel) -> tuple[str, ...]:
    age = "old" if kernel.is_default else "new"
    return (f"{age}: {kernel.kernel}", kernel.condition,
            kernel.serves or ("all others" if kernel.is_default else ""))
