"""Check the times that a runner reports against this process's own clock.

A runner shares its process with the kernel, so the candidate can forge the runner's clock. Our own
clock sees a block from request to answer: the block plus a fixed cost, which the difference of two
block lengths cancels. A busy machine delays the blocks of both sides; a candidate that reports too
little delays only its own. Three quantities are compared with the incumbent's, over all blocks of
all pairs: the slope of our clock against the reported one, the time of a block beyond its report,
and whether short and long blocks report the same time per call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from harness.timing.stats import t_quantile

SLOPE_TIGHT = 0.01
"""Relative excess of the candidate's slope over the incumbent's that is accepted, besides noise."""
LINEAR_TIGHT = 0.02
CERTAIN, SUSPECT = 1e-4, 0.01
"""Error rates of a certain finding, and of a suspicion, which leads to more pairs."""
GROSS = 0.3
"""Larger relative excesses count as this one."""
LEAST_PAIRS = 3
SLOW_NS = 1_000_000
"""A block that takes this much longer than it reports is slow, if it is far beyond all others."""
GROSS_GAPS = 20
"""Larger costs around a block count as this many times the accepted one."""


@dataclass(frozen=True)
class TimedBlock:
    """One timed block: `calls` took `ns` by the runner, `elapsed_ns` from request to answer.

    `asked_ns` is the time of the request (perf_counter_ns).
    """

    calls: int
    ns: int
    elapsed_ns: int
    asked_ns: int = 0
    store_ns: int = 0
    """Time in which the runner copied what the calls returned, from request to answer."""

    @property
    def gap_ns(self) -> int:
        return self.elapsed_ns - self.ns


@dataclass(frozen=True)
class ClockExcess:
    """Time that the candidate does not report; `certain` if noise cannot explain it."""

    message: str
    certain: bool


class ClockCheck:
    """Compares both sides' blocks; `tight_ns` is the accepted excess of the cost around a block.

    Every class of every pair gives one difference, candidate minus incumbent. Student's t over
    these is robust against a busy machine, which widens their spread.
    """

    def __init__(self, tight_ns: int) -> None:
        self.tight_ns = tight_ns
        self._gaps: list[float] = []
        self._slopes: list[float] = []
        self._curves: list[float] = []
        self._blocks = self._slow = self._late = self._shapeless = 0

    def add(self, candidate: Sequence[TimedBlock], incumbent: Sequence[TimedBlock]) -> None:
        """Add the blocks of one class of one pair."""
        self._gaps.append(median(block.gap_ns for block in candidate)
                          - median(block.gap_ns for block in incumbent))
        tested, reference = _shape(candidate), _shape(incumbent)
        usual_ns = max((block.gap_ns for block in incumbent), default=0)
        self._blocks += len(candidate)
        self._slow += sum(block.gap_ns > max(SLOW_NS, block.ns // 2, 3 * usual_ns)
                          for block in candidate)
        stored_ns = max((block.store_ns for block in incumbent), default=0)
        self._late += sum(block.store_ns > 2 * stored_ns + SLOW_NS // 2 for block in candidate)
        self._shapeless += reference is not None and tested is None
        if tested is not None and reference is not None:
            self._slopes.append((tested.untold_ns - reference.untold_ns) / tested.reported_ns)
            self._curves.append(tested.curve - reference.curve)

    def excess(self) -> ClockExcess | None:
        """Return the most certain excess of the candidate; None if its times are plausible."""
        findings = [
            _beyond(_clipped(self._slopes, GROSS), SLOPE_TIGHT,
                    lambda more: f"by our clock it takes {more:.1%} longer than it "
                                 "reports"),
            _beyond(_clipped(self._gaps, GROSS_GAPS * self.tight_ns), self.tight_ns,
                    lambda more: f"its blocks take {more / 1e6:.2f} ms more than it reports"),
            _beyond(_clipped(self._curves, GROSS), LINEAR_TIGHT,
                    lambda more: f"long blocks report {more:.1%} more time per call than short "
                                 "ones")]
        if len(self._gaps) >= LEAST_PAIRS and 2 * self._slow > self._blocks:
            findings.append(ClockExcess("most of its blocks take far longer than it reports", True))
        if len(self._gaps) >= LEAST_PAIRS and 2 * self._late > self._blocks:
            findings.append(ClockExcess("what it returned comes long after its blocks", True))
        if len(self._gaps) >= LEAST_PAIRS and 2 * self._shapeless > len(self._gaps):
            findings.append(ClockExcess("its longer blocks do not take longer", True))
        return max((excess for excess in findings if excess is not None),
                   key=lambda excess: excess.certain, default=None)

    @property
    def band(self) -> float | None:
        """The share by which a time could have been forged undetected; None if unknown."""
        if len(self._slopes) < 2:
            return None
        return SLOPE_TIGHT + _half(self._slopes, CERTAIN)


@dataclass(frozen=True)
class _Shape:
    """How blocks of two lengths took their time, per call.

    `untold_ns` is what our clock's slope has beyond the reported one; `curve` is log(long / short)
    of reported times.
    """

    reported_ns: float
    untold_ns: float
    curve: float


def _shape(blocks: Sequence[TimedBlock]) -> _Shape | None:
    middle = (min(b.calls for b in blocks) + max(b.calls for b in blocks)) / 2
    short = [block for block in blocks if block.calls < middle]
    long = [block for block in blocks if block.calls > middle]
    if not short or not long:
        return None
    seen = _slope([(block.calls, block.elapsed_ns) for block in blocks])
    reported = _slope([(block.calls, block.ns) for block in blocks])
    if seen <= 0 or reported <= 0:
        return None
    return _Shape(reported, seen - reported, math.log(
        median(b.ns / b.calls for b in long) / median(b.ns / b.calls for b in short)))


def _slope(points: Sequence[tuple[int, int]]) -> float:
    """Return the median slope over pairs of a short and a long block (Theil and Sen)."""
    slopes = [(y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(points)
              for x2, y2 in points[i + 1:] if 2 * abs(x2 - x1) > max(x1, x2)]
    return median(slopes) if slopes else 0.0


def _beyond(values: Sequence[float], tight: float, words: Callable[[float], str],
            ) -> ClockExcess | None:
    if len(values) < LEAST_PAIRS:
        return None
    more = fmean(values)
    if more - tight <= _half(values, SUSPECT):
        return None
    return ClockExcess(words(more), more - tight > _half(values, CERTAIN))


def _clipped(values: Sequence[float], limit: float) -> list[float]:
    """Return the values within a limit: one huge value would hide all others behind its spread."""
    return [min(limit, max(-limit, value)) for value in values]


def _half(values: Sequence[float], alpha: float) -> float:
    """Return the width of a one-sided Student interval of the mean."""
    error = stdev(values) / math.sqrt(len(values))
    return t_quantile(1 - alpha, len(values) - 1) * error
