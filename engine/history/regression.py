"""Summaries of slower candidates: what was tried, on which best, and which classes lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.history import change_summary
from engine.journal.judged_rows import DecisionRow
from engine.journal.records import Candidate, Round
from harness.formats import quantities
from harness.timing.outcome import row_word
from harness.timing.plan import Score
from harness.verdict import Row, Verdict

Change = tuple[float, float]
"""Times of the best and of the candidate, measured together, microseconds."""


class Regression(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that was slower: what it tried, on which best, and how much slower it was."""

    round: int
    at: float
    baseline: str
    """The best commit of that time."""
    candidate: str
    hypothesis: str
    bottleneck: str
    files: tuple[str, ...]
    wall_us: Change | None
    """Times of whole calls; None if not measured."""
    kernel_us: Change | None
    """GPU kernel times; None if not measured."""
    change: float
    """Change of the time as a share: 0.03 is 3 % slower."""
    points: tuple[str, ...]
    """The classes that are slower, and the harness's evidence."""


def of(round: Round, decision: DecisionRow, verdict: Verdict, score: Score,
       candidate: Candidate | None, folder: Path) -> Regression:
    """Return the summary of a decision; `folder` is the campaign's, which has the patches."""
    ratio = verdict.speedup or 1.0
    scored = None if verdict.latency_us is None else (verdict.latency_us * ratio,
                                                      verdict.latency_us)
    other = other_times(verdict.rows)
    is_kernel = is_by_kernel_time(verdict, score)
    return Regression(
        round=round.n, at=decision.at, candidate=decision.candidate,
        baseline=candidate.base_commit if candidate else round.incumbent,
        hypothesis=candidate.hypothesis if candidate else "",
        bottleneck=candidate.bottleneck if candidate else "",
        files=change_summary.files(folder, candidate), wall_us=other if is_kernel else scored,
        kernel_us=scored if is_kernel else other, change=1 / ratio - 1,
        points=points(verdict.rows) + tuple(
            f"{evidence.kind}: {evidence.detail}" for evidence in verdict.evidence
            if evidence.kind in ("kernels", "launch")))


def is_by_kernel_time(verdict: Verdict, score: Score) -> bool:
    """Return whether latencies are GPU kernel times, and the other times those of whole calls."""
    return verdict.by_kernel_time or (verdict.latency_kind == "measured-gpu" and score == "kernel")


def other_times(rows: Sequence[Row]) -> Change | None:
    """Return the times that were not scored, as weighted geometric means over the classes."""
    times = [(row.incumbent_other_us, row.other_us) for row in rows]
    if not times:
        return None
    weight = math.fsum(row.weight for row in rows)
    sums = [math.fsum(row.weight * math.log(us) for row, us in zip(rows, side, strict=True) if us)
            for side in zip(*times, strict=True)]
    if not weight or not all(us for pair in times for us in pair):
        return None
    return math.exp(sums[0] / weight), math.exp(sums[1] / weight)


def points(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the slower classes in words, worst first: `tall 6.2% slower (41% of roofline)`."""
    slower = [row for row in rows if row.log_ratio is not None and row.log_ratio < 0
              and row_word(row) not in ("tie", "uncertain")]
    texts = []
    for row in sorted(slower, key=lambda row: row.log_ratio or 0.0):
        reach = "" if row.pct_of_roofline is None else f" ({row.pct_of_roofline:.0f}% of roofline)"
        texts.append(f"{row.config_class} {quantities.change(row.log_ratio)}{reach}"
                     + (f", {row.note}" if row.note else ""))
    return tuple(texts)
