"""The Stop Summary: why a campaign ended, where it stood then, and what made it slower lately."""

from __future__ import annotations

from collections.abc import Sequence

from engine.history.campaign_view import JournalView, StopRecord
from engine.history.history import Regression, Rollback
from engine.markdown import cost, line, table
from engine.records import measured

REGRESSIONS = ("attempt", "date", "BEST_COMMIT", "candidate", "hypothesis", "changed files",
               "call time best -> candidate", "GPU time best -> candidate", "delta", "notes")


def summary(story: JournalView, at: float, told: StopRecord) -> str:
    """Return the Stop Summary of a stop, as things were then."""
    past = story.history.until(at)
    counts, recent = past.tally, past.recent()
    lines = [
        "## Stop Summary", "", f"- stop time: {story.stamp(at)}",
        f"- stop reason: {line(told.outcome)}",
        f"- current BEST_COMMIT: {past.best}",
        *(f"- rolled back: {line(rolled_back(one))}" for one in past.rollbacks),
        f"- current best metrics: {line(measured.metrics(past))}",
        f"- rounds: {counts.rounds}, at the end {counts.consecutive_regressions} regressions and "
        f"{counts.without_gain} rollbacks in a row",
        f"- spent: {told.wall_s:.0f} s, {told.trials} trials{cost(told.cost)}",
        f"- candidates waiting for a person: {told.waiting}",
        f"- recent regressions: {len(recent)}", ""]
    if recent:
        lines.append(regressions(story, recent))
    return "\n".join(lines)


def rolled_back(one: Rollback) -> str:
    """Return from where a best gave way, and why."""
    return f"from {one.before[:12]}: {one.reason}; {one.destination}"


def regressions(story: JournalView, found: Sequence[Regression]) -> str:
    """Return the table of regression summaries."""
    return table(REGRESSIONS, [(
        f"round {one.round}", story.stamp(one.at), one.baseline[:8], one.candidate[:8],
        f"{one.hypothesis} (against {one.bottleneck})" if one.bottleneck else one.hypothesis,
        ", ".join(one.files), measured.told(one.wall_us), measured.told(one.kernel_us),
        f"{one.change:+.1%}", "; ".join(one.points)) for one in found])
