"""The tables that both forms of the report show, as unescaped text."""

from __future__ import annotations

from engine.history.campaign_view import JournalView
from engine.journal.records import Campaign
from engine.records import class_history, measured, round_summary, stop_summary

TRIED = ("round", "slot", "candidate", "decision", "speedup", "hypothesis", "reason")
LIMITS = ("where", "limiter", "value", "advice")
CODE = ("commit", "candidate")
"""Columns that hold an id."""


def without_gain(row: Campaign) -> str:
    """Return the headline of a campaign without a measured gain."""
    if row.best_commit == row.base_commit:
        return "No gain was kept: the kernel is as it was."
    return "What was kept is not accepted: its gain against the baseline is not measured."


def facts(view: JournalView) -> list[tuple[str, str]]:
    """Return what identifies a campaign, by name."""
    row = view.row
    return [
        ("campaign", row.id), ("state", f"{row.state}: {row.outcome}".rstrip(": ")),
        ("target", f"{row.op} in {row.lang or row.backend}"),
        ("device", f"{row.device} {row.gpu}".strip()), ("from commit", row.base_commit[:12]),
        ("to commit", row.best_commit[:12]),
        *(("rolled back", stop_summary.rollback_reason(rollback))
          for rollback in view.history.rollbacks),
        ("rounds", str(len(view.history.rounds))),
        ("candidates", str(len(view.history.candidates))),
        ("time", f"{view.stamp(row.created_at)} to {view.stamp(view.ended_at)}, "
                 f"{(view.ended_at - row.created_at) / 60:.0f} min")]


def tried(view: JournalView) -> list[tuple[str, ...]]:
    """Return every decision, oldest first."""
    rows: list[tuple[str, ...]] = []
    for decision in view.history.decisions:
        candidate = view.history.candidates.get(decision.candidate)
        verdict = view.history.verdicts.get(decision.verdict or 0)
        rows.append((str(decision.round), candidate.slot if candidate else "",
                     decision.candidate[:12], decision.kind, measured.recorded_speedup(verdict),
                     candidate.hypothesis if candidate else "", decision.reason))
    return rows


def history(view: JournalView) -> list[tuple[str, ...]]:
    """Return each class's baseline and its time after every keep."""
    return [(str(row.round), row.commit[:12]
             + (" (rolled back)" if row.commit in view.history.undone else ""),
             *class_history.cells(row)) for row in class_history.by_class(view.history)]


def limits(view: JournalView) -> list[tuple[str, ...]]:
    """Return the bottlenecks of the newest round that has some."""
    rounds = [bottlenecks for _, bottlenecks in sorted(view.bottlenecks.items()) if bottlenecks]
    return [(f"{bottleneck.kernel} {bottleneck.config_class}".strip(), bottleneck.limiter,
             round_summary.value(bottleneck.metric, bottleneck.value), bottleneck.advice)
            for bottleneck in (rounds[-1] if rounds else ())]
