"""performance.md: the baseline and what was kept, nothing else; stops stand apart below."""

from __future__ import annotations

from collections.abc import Iterator

from engine.history.campaign_view import JournalView
from engine.history.kernel_splits import SplitKernel
from engine.journal.records import DecisionRow
from engine.markdown import line, table
from engine.records import measured, scope, stop_summary
from harness.verdict import Verdict

HEAD = """# {campaign}

Only the baseline and kept gains are listed here; every attempt is in logs/optimize.md.

"""
GAINS = ("date", "commit", "status", "benchmark command", "config class or condition", "kernel",
         "call time", "GPU time", "against the last best", "why")
SIDES = ("kernel", "condition", "config classes")


def page(story: JournalView) -> str:
    """Return performance.md."""
    head = HEAD.format(campaign=line(story.campaign)) + table(GAINS, _rows(story))
    ends = (stop_summary.summary(story, at, told) for at, told in story.stops)
    return "\n".join([head, *_parts(story), *ends])


def _rows(story: JournalView) -> Iterator[tuple[str, ...]]:
    past = story.history
    first = measured.baseline(past)
    if first is not None:
        yield _row(story, first.at, past.base, "baseline", "all", 1, first.decode(), "",
                   "unmodified code")
    for keep in past.keeps:
        if keep.verdict in past.verdicts:
            verdict = past.verdicts[keep.verdict].decode()
            status = "rolled back" if keep.commit in past.undone else "keep"
            yield _row(story, keep.at, keep.commit, status, scope.of_keep(story, keep), keep.round,
                       verdict, measured.change(verdict), why(story, keep))


def _row(story: JournalView, at: float, commit: str, status: str, about: str, n: int,
         verdict: Verdict, change: str, reason: str) -> tuple[str, ...]:
    return (story.stamp(at), commit[:12], status, story.measured_by, about,
            measured.kernel(story, n, verdict), *measured.latencies(verdict, story.history.score),
            change, reason)


def why(story: JournalView, keep: DecisionRow) -> str:
    """Return which bottleneck a kept change was aimed at and what it did."""
    candidate = story.history.candidates.get(keep.candidate)
    if candidate is None:
        return line(keep.reason)
    aimed = f" (against {candidate.bottleneck})" if candidate.bottleneck else ""
    by = "" if keep.actor == "engine" else f"; kept by {keep.actor}"
    return line(f"{candidate.hypothesis}{aimed}{by}")


def _parts(story: JournalView) -> Iterator[str]:
    first = measured.baseline(story.history)
    if first is not None:
        yield "## Baseline by config class\n\n" + measured.classes_of_baseline(
            first.decode())
    if best := measured.of_classes(story.history):
        yield f"## Best by config class\n\n{line(measured.metrics(story.history))}\n\n{best}"
    for keep in story.history.keeps:
        for split in story.splits.get(keep.commit, ()):
            yield f"## Kernel split of {line(split.entry)} in {keep.commit[:12]}\n\n" \
                + table(SIDES, map(_side, split.kernels))


def _side(one: SplitKernel) -> tuple[str, ...]:
    """Return which kernel serves which classes: those that are named, or all others."""
    word = "old" if one.is_default else "new"
    return (f"{word}: {one.kernel}", one.condition,
            one.serves or ("all others" if one.is_default else ""))
