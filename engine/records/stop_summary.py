"""The Stop Summary: why a campaign stopped, where it stood, and what regressed lately."""

from __future__ import annotations

from collections.abc import Sequence

from engine.history.campaign_view import JournalView, StopRecord
from engine.history.history import Regression, Rollback
from engine.markdown import cost, line, table
from engine.records import measured
from harness.formats.quantities import counted

REGRESSIONS = ("attempt", "date", "BEST_COMMIT", "candidate", "hypothesis", "changed files",
               "call time best -> candidate", "GPU time best -> candidate", "delta", "notes")


def summary(view: JournalView, at: float, stop: StopRecord) -> str:
    """Return the Stop Summary with the campaign's state at the time of the stop."""
    past = view.history.until(at)
    counts, recent = past.tally, past.recent()
    lines = [
        "## Stop Summary", "", f"- stop time: {view.stamp(at)}",
        f"- stop reason: {line(stop.outcome)}",
        f"- current BEST_COMMIT: {past.best}",
        *(f"- rolled back: {line(rollback_reason(rollback))}" for rollback in past.rollbacks),
        f"- current best metrics: {line(measured.metrics(past))}",
        f"- rounds: {counts.rounds}, at the end {counts.consecutive_regressions} regressions and "
        f"{counts.without_gain} rounds without a gain in a row",
        f"- spent: {stop.wall_s:.0f} s, {counted(stop.trials, 'trial')}{cost(stop.cost)}",
        f"- candidates waiting for a person: {stop.waiting}",
        f"- recent regressions: {len(recent)}", ""]
    if recent:
        lines.append(regressions(view, recent))
    return "\n".join(lines)


def rollback_reason(rollback: Rollback) -> str:
    """Return the commit that was rolled back, and why."""
    return f"from {rollback.before[:12]}: {rollback.reason}; {rollback.destination}"


def regressions(view: JournalView, found: Sequence[Regression]) -> str:
    """Return the table of regressions."""
    return table(REGRESSIONS, [(
        f"round {own.round}", view.stamp(own.at), own.baseline[:8], own.candidate[:8],
        f"{own.hypothesis} (against {own.bottleneck})" if own.bottleneck else own.hypothesis,
        ", ".join(own.files), measured.times(own.wall_us), measured.times(own.kernel_us),
        f"{own.change:+.1%}", "; ".join(own.points)) for own in found])
