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
from random import SystemRandom
from statistics import NormalDist, fmean, median

SLOPE_TIGHT = 0.01
"""Accepted unreported share of the time by which long blocks exceed short ones, besides noise."""
CERTAIN, SUSPECT = 1e-4, 0.01
"""Error rates of a certain finding, and of a suspicion, which leads to more pairs."""
WIDEST_BAND = 0.02
"""A gain below the band gets more pairs while the band is wider than this."""
LEAST_PAIRS = 3
MOST_BLOCKS = 150
"""Blocks of a class and side that are compared: all pairs of more would take seconds."""
LEAST_DUE = 0.25
"""Share of a long block's time by which it exceeds a short one, at the least."""
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


@dataclass
class BothSides:
    """Blocks of one class and one length."""

    candidate: list[TimedBlock] = field(default_factory=list)
    incumbent: list[TimedBlock] = field(default_factory=list)

    def __add__(self, other: BothSides) -> BothSides:
        return BothSides(self.candidate + other.candidate, self.incumbent + other.incumbent)


class ShareRange:
    """An interval of the unreported share: Mann's and Whitney's, over all pairs of blocks.

    Each value is a candidate's `time` minus an incumbent's of the same class, relative to the
    candidate's time or to `over_ns`. The interval needs no model of the noise, and a few extreme
    blocks do not widen it. Of very many blocks it takes some by chance.
    """

    def __init__(self, groups: Iterable[tuple[BothSides, float]],
                 time: Callable[[TimedBlock], int] = attrgetter("gap_ns")) -> None:
        self._values: list[float] = []
        variance = 0.0
        for blocks, over_ns in groups:
            candidate, incumbent = _some(blocks.candidate), _some(blocks.incumbent)
            others = [time(other) for other in incumbent]
            self._values += [(time(one) - other) / (over_ns or one.ns)
                             for one in candidate for other in others]
            variance += len(candidate) * len(others) * (len(candidate) + len(others) + 1) / 12
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
    """All timed blocks of one class."""

    short: BothSides = field(default_factory=BothSides)
    long: BothSides = field(default_factory=BothSides)

    @property
    def whole(self) -> BothSides:
        return self.short + self.long


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
        shortest = min(block.calls for block in incumbent)
        for length, is_long in ((blocks.short, False), (blocks.long, True)):
            for side, added in ((length.candidate, candidate), (length.incumbent, incumbent)):
                side += [block for block in added if (block.calls > 2 * shortest) == is_long]
        self._pairs += 1
        self._blocks += len(candidate)
        stored_ns = max((block.store_ns for block in incumbent), default=0)
        self._late += sum(block.store_ns > 2 * stored_ns + LATE_NS for block in candidate)

    def excess(self) -> ClockExcess | None:
        """Return the most certain excess of the candidate; None if its times are plausible."""
        if self._pairs < LEAST_PAIRS:
            return None
        findings = [self._of_whole_blocks(), self._of_slope(), self._of_lengths()]
        if 2 * self._late > self._blocks:
            findings.append(ClockExcess("what it returned comes long after its blocks", True))
        return max((excess for excess in findings if excess is not None),
                   key=lambda excess: excess.certain, default=None)

    def _of_whole_blocks(self) -> ClockExcess | None:
        whole = [blocks.whole for blocks in self._classes.values()]
        mean_ns = fmean(block.ns for blocks in whole for block in blocks.candidate)
        return _beyond(ShareRange((blocks, 0.0) for blocks in whole).low, self.tight_ns / mean_ns,
                       lambda more: ("by our clock its blocks take at least "
                                     f"{more:.1%} longer than it reports"))

    def _of_slope(self) -> ClockExcess | None:
        """Compare what long blocks take beyond short ones: a cost around each block cancels."""
        more_ns = {name: _typical(blocks.long.candidate) - _typical(blocks.short.candidate)
                   for name, blocks in self._classes.items() if blocks.long.incumbent}
        chosen = [(self._classes[name], ns) for name, ns in more_ns.items() if ns > 0]
        if not chosen:
            return None
        long_share = ShareRange((blocks.long, ns) for blocks, ns in chosen)
        short_share = ShareRange((blocks.short, ns) for blocks, ns in chosen)
        return _beyond(lambda alpha: long_share.low(alpha) - short_share.high(alpha), SLOPE_TIGHT,
                       lambda more: (f"by our clock its calls take at least {more:.1%} longer "
                                     "than it reports"))

    def _of_lengths(self) -> ClockExcess | None:
        """Compare long blocks with short ones: two thirds of their time are due to more calls."""
        for blocks in self._classes.values():
            more = ShareRange([(BothSides(blocks.long.candidate, blocks.short.candidate), 0.0)],
                              attrgetter("elapsed_ns"))
            if more.high(SUSPECT) < LEAST_DUE:
                return ClockExcess("its longer blocks do not take longer",
                                   more.high(CERTAIN) < LEAST_DUE)
        return None

    @property
    def band(self) -> float | None:
        """The largest share of its time that the candidate may not have reported; None if unknown.

        More than that is at least suspected. Work may also hide where what was returned is copied.
        """
        share = ShareRange(((blocks.whole, 0.0) for blocks in self._classes.values()),
                           attrgetter("unreported_ns")).high(SUSPECT)
        return max(0.0, share) if math.isfinite(share) else None


def _beyond(low: Callable[[float], float], tight: float, words: Callable[[float], str],
            ) -> ClockExcess | None:
    """Return an excess if its lower limit is above the accepted one."""
    if (suspected := low(SUSPECT)) <= tight:
        return None
    certain = low(CERTAIN)
    return ClockExcess(words(certain if certain > tight else suspected),
                       certain > tight)


def _some(blocks: list[TimedBlock]) -> list[TimedBlock]:
    """Return at most MOST_BLOCKS of them, which no candidate can foresee."""
    return blocks if len(blocks) <= MOST_BLOCKS else SystemRandom().sample(blocks, MOST_BLOCKS)


def _typical(blocks: Sequence[TimedBlock]) -> float:
    return median(block.ns for block in blocks)
