"""Check the times that a runner reports against this process's own clock.

A runner shares its process with the kernel, so native code of a candidate can forge its clock. Our
own clock sees a block from the moment its process may run to its answer: the reported time and a
cost that is the same on both sides. What the candidate's blocks take beyond that is time that it
does not report, as a share of what it reports. Every block of every pair counts; a busy machine
delays the blocks of both sides, and so widens the error of the share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from statistics import NormalDist, fmean, median

SLOPE_TIGHT = 0.01
"""Accepted unreported share of the time by which long blocks exceed short ones, besides noise."""
CERTAIN, SUSPECT = 1e-4, 0.01
"""Error rates of a certain finding, and of a suspicion, which leads to more pairs."""
WIDEST_BAND = 0.02
"""A gain below the band gets more pairs while the band is wider than this."""
LEAST_PAIRS = 3
LATE_NS = 500_000
"""Copying what was returned may take this much longer than twice the incumbent's time."""


@dataclass(frozen=True)
class TimedBlock:
    """One timed block: `calls` took `ns` by the runner, `elapsed_ns` from request to answer.

    `asked_ns` is the time of the request (perf_counter_ns), `store_ns` how long the runner then
    copied what the calls returned, by our clock.
    """

    calls: int
    ns: int
    elapsed_ns: int
    asked_ns: int = 0
    store_ns: int = 0

    @property
    def gap_ns(self) -> int:
        return self.elapsed_ns - self.ns

    @property
    def unreported_ns(self) -> int:
        return self.gap_ns + self.store_ns


@dataclass(frozen=True)
class ClockExcess:
    """Time that the candidate does not report; `certain` if noise cannot explain it."""

    message: str
    certain: bool


class ShareRange:
    """An interval of the unreported share: Mann's and Whitney's, over all pairs of blocks.

    Each value is a candidate's `time` minus an incumbent's of the same class, relative to a time.
    The interval needs no model of the noise, and a few extreme blocks do not widen it.
    """

    def __init__(self, groups: Iterable[tuple[Sequence[TimedBlock], Sequence[TimedBlock], float]],
                 time: Callable[[TimedBlock], int] = attrgetter("gap_ns")) -> None:
        self._values: list[float] = []
        variance = 0.0
        for candidate, incumbent, over_ns in groups:
            others = [time(other) for other in incumbent]
            self._values += [(time(one) - other) / (over_ns or one.ns)
                             for one in candidate for other in others]
            variance += len(candidate) * len(incumbent) * (len(candidate) + len(incumbent) + 1) / 12
        self._values.sort()
        self._error = math.sqrt(variance)

    def low(self, alpha: float) -> float:
        """Return the one-sided lower limit; minus infinity if the blocks are too few."""
        place = self._place(alpha)
        return self._values[place] if place >= 0 else -math.inf

    def high(self, alpha: float) -> float:
        place = self._place(alpha)
        return self._values[-1 - place] if place >= 0 else math.inf

    def _place(self, alpha: float) -> int:
        return math.floor(len(self._values) / 2
                          - NormalDist().inv_cdf(1 - alpha) * self._error) - 1


@dataclass
class ClassBlocks:
    """All timed blocks of one class, by side."""

    candidate: list[TimedBlock] = field(default_factory=list)
    incumbent: list[TimedBlock] = field(default_factory=list)

    def of_length(self, *, long: bool) -> tuple[list[TimedBlock], list[TimedBlock]]:
        """Return the short or the long blocks of both sides."""
        short_calls = min(block.calls for block in self.incumbent)
        return tuple([block for block in side  # type: ignore[return-value]
                      if (block.calls > 2 * short_calls) == long]
                     for side in (self.candidate, self.incumbent))


class ClockCheck:
    """Compares both sides' blocks; `tight_ns` is the accepted excess of the cost around a block."""

    def __init__(self, tight_ns: int) -> None:
        self.tight_ns = tight_ns
        self._classes: dict[str, ClassBlocks] = {}
        self._blocks = self._late = self._pairs = 0

    def add(self, candidate: Sequence[TimedBlock], incumbent: Sequence[TimedBlock],
            config_class: str = "") -> None:
        """Add the blocks of one class of one pair."""
        blocks = self._classes.setdefault(config_class, ClassBlocks())
        blocks.candidate += candidate
        blocks.incumbent += incumbent
        self._pairs += 1
        self._blocks += len(candidate)
        stored_ns = max((block.store_ns for block in incumbent), default=0)
        self._late += sum(block.store_ns > 2 * stored_ns + LATE_NS for block in candidate)

    def excess(self) -> ClockExcess | None:
        """Return the most certain excess of the candidate; None if its times are plausible."""
        if self._pairs < LEAST_PAIRS:
            return None
        findings = [self._of_whole_blocks(), self._of_slope()]
        if 2 * self._late > self._blocks:
            findings.append(ClockExcess("what it returned comes long after its blocks", True))
        if any(_has_shape(each.incumbent) and not _has_shape(each.candidate)
               for each in self._classes.values()):
            findings.append(ClockExcess("its longer blocks do not take longer", True))
        return max((excess for excess in findings if excess is not None),
                   key=lambda excess: excess.certain, default=None)

    def _of_whole_blocks(self) -> ClockExcess | None:
        mean_ns = fmean(block.ns for blocks in self._classes.values()
                        for block in blocks.candidate)
        share = ShareRange(self._whole())
        return _beyond(share.low, self.tight_ns / mean_ns, lambda more: (
            f"by our clock its blocks take at least {more:.1%} longer than it reports"))

    def _of_slope(self) -> ClockExcess | None:
        """Compare what long blocks take beyond short ones: a cost around each block cancels."""
        groups: dict[bool, list[tuple[list[TimedBlock], list[TimedBlock], float]]] = {
            True: [], False: []}
        for blocks in self._classes.values():
            lengths = {long: blocks.of_length(long=long) for long in (True, False)}
            if any(not side for length in lengths.values() for side in length):
                continue
            more_ns = _typical(lengths[True][0]) - _typical(lengths[False][0])
            if more_ns > 0:
                for long, (candidate, incumbent) in lengths.items():
                    groups[long].append((candidate, incumbent, more_ns))
        if not groups[True]:
            return None
        long_share, short_share = ShareRange(groups[True]), ShareRange(groups[False])
        return _beyond(lambda alpha: long_share.low(alpha) - short_share.high(alpha), SLOPE_TIGHT,
                       lambda more: (f"by our clock its calls take at least {more:.1%} longer "
                                     "than it reports"))

    def _whole(self) -> list[tuple[list[TimedBlock], list[TimedBlock], float]]:
        return [(blocks.candidate, blocks.incumbent, 0.0) for blocks in self._classes.values()]

    @property
    def band(self) -> float | None:
        """The largest share of its time that the candidate may not have reported; None if unknown.

        More than that is at least suspected. Work may also hide where what was returned is copied.
        """
        share = ShareRange(self._whole(), attrgetter("unreported_ns")).high(SUSPECT)
        return max(0.0, share) if math.isfinite(share) else None


def _beyond(low: Callable[[float], float], tight: float, words: Callable[[float], str],
            ) -> ClockExcess | None:
    """Return an excess if its lower limit is above the accepted one."""
    if (suspected := low(SUSPECT)) <= tight:
        return None
    certain = low(CERTAIN)
    return ClockExcess(words(certain if certain > tight else suspected),
                       certain > tight)


def _has_shape(blocks: Sequence[TimedBlock]) -> bool:
    """Return whether longer blocks take longer, by both clocks."""
    middle = (min(b.calls for b in blocks) + max(b.calls for b in blocks)) / 2
    short = [block for block in blocks if block.calls < middle]
    long = [block for block in blocks if block.calls > middle]
    return bool(short and long) and _typical(long) > _typical(short) \
        and median(b.elapsed_ns for b in long) > median(b.elapsed_ns for b in short)


def _typical(blocks: Sequence[TimedBlock]) -> float:
    return median(block.ns for block in blocks)
