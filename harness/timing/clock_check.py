"""Whether the times that a runner reports can be accounted for by this process's own clock.

A runner shares its process with the kernel, so its clock is the candidate's word. Our own clock
sees a block from the question to the answer: the block, and a fixed cost that the difference of
two block lengths removes. A busy machine delays blocks of both sides; a candidate that reports
less than it took delays its own. Three things are compared with the incumbent's, pooled over
every block of every pair: the slope of our clock over the reported one, what a block takes beyond
its report, and whether short and long blocks report the same time a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from harness.timing.stats import t_quantile

SLOPE_TIGHT = 0.01
"""How much steeper (relative) the candidate's clock may be than the incumbent's, noise aside."""
LINEAR_TIGHT = 0.02
CERTAIN, SUSPECT = 1e-4, 0.01
"""Error rates of an accusation and of a suspicion, which is measured further."""
GROSS = 0.3
"""So much of the time missing is certain as soon as it is suspected."""


@dataclass(frozen=True)
class TimedBlock:
    """One timed block: `calls` took `ns` by the runner, `elapsed_ns` from question to answer.

    `untimed_ns` is what the runner does around it by its own words: a first call, not timed.
    `asked_ns` is when the question was asked (perf_counter_ns).
    """

    calls: int
    ns: int
    elapsed_ns: int
    untimed_ns: int
    asked_ns: int = 0

    @property
    def gap_ns(self) -> int:
        return self.elapsed_ns - self.ns - self.untimed_ns


@dataclass(frozen=True)
class ClockExcess:
    """What the candidate's times lack, in words; `certain` if noise cannot explain it."""

    told: str
    certain: bool


class ClockCheck:
    """Compares both sides' blocks; `tight_ns` is the fixed cost allowed around a block.

    Every class of every pair gives one difference, candidate less incumbent; Student's t over
    them is robust against a busy machine, which widens the spread.
    """

    def __init__(self, tight_ns: int) -> None:
        self.tight_ns = tight_ns
        self._gaps: list[float] = []
        self._slopes: list[float] = []
        self._curves: list[float] = []

    def add(self, candidate: Sequence[TimedBlock], incumbent: Sequence[TimedBlock]) -> None:
        """Take the blocks of one class of one pair."""
        self._gaps.append(median(block.gap_ns for block in candidate)
                          - median(block.gap_ns for block in incumbent))
        theirs, ours = _shape(candidate), _shape(incumbent)
        if theirs is not None and ours is not None:
            self._slopes.append(theirs[0] - ours[0])
            self._curves.append(theirs[1] - ours[1])

    def excess(self) -> ClockExcess | None:
        """Return what the candidate's times lack, None when they can be accounted for."""
        found = [
            _beyond(self._slopes, SLOPE_TIGHT,
                    lambda more: f"by our clock it takes {math.expm1(more):.1%} longer than it "
                                 "reports", GROSS),
            _beyond(self._gaps, self.tight_ns,
                    lambda more: f"its blocks take {more / 1e6:.2f} ms more than it reports"),
            _beyond(self._curves, LINEAR_TIGHT,
                    lambda more: f"long blocks report {more:.1%} more time a call than short ones")]
        excesses = [one for one in found if one is not None]
        return max(excesses, key=lambda one: one.certain, default=None)

    @property
    def band(self) -> float | None:
        """The share by which a time could have been forged unseen; None where it is not known."""
        if len(self._slopes) < 2:
            return None
        return SLOPE_TIGHT + _half(self._slopes, CERTAIN)


def _shape(blocks: Sequence[TimedBlock]) -> tuple[float, float] | None:
    """Return the log of our slope over the reported one, and of long over short reported times."""
    middle = (min(b.calls for b in blocks) + max(b.calls for b in blocks)) / 2
    short = [block for block in blocks if block.calls < middle]
    long = [block for block in blocks if block.calls > middle]
    if not short or not long:
        return None
    seen = _slope([(block.calls, block.elapsed_ns - block.untimed_ns) for block in blocks])
    reported = _slope([(block.calls, block.ns) for block in blocks])
    if seen <= 0 or reported <= 0:
        return None
    return math.log(seen / reported), math.log(
        median(b.ns / b.calls for b in long) / median(b.ns / b.calls for b in short))


def _slope(points: Sequence[tuple[int, int]]) -> float:
    """Return the median slope between a short and a long block (Theil and Sen)."""
    slopes = [(y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(points)
              for x2, y2 in points[i + 1:] if 2 * abs(x2 - x1) > max(x1, x2)]
    return median(slopes) if slopes else 0.0


def _beyond(values: Sequence[float], tight: float, words: Callable[[float], str],
            gross: float = math.inf) -> ClockExcess | None:
    if len(values) < 3:
        return None
    more = fmean(values)
    if more - tight <= _half(values, SUSPECT):
        return None
    return ClockExcess(words(more), more > gross or more - tight > _half(values, CERTAIN))


def _half(values: Sequence[float], alpha: float) -> float:
    """Return the half width of a one-sided Student interval of the mean."""
    error = stdev(values) / math.sqrt(len(values))
    return t_quantile(1 - alpha, len(values) - 1) * error
