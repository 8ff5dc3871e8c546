"""Check the times that a runner reports against this process's own clock.

A runner shares its process with the kernel, so native code of a candidate can forge its clock. Our
own clock sees a block from the moment its process may run to its answer: the reported time and a
cost that is the same on both sides. What the candidate's blocks take beyond that is unreported
time; it is given as a share of the reported time. Blocks of one process share its core, its memory
and what else runs there, so each process pair gives one value, and a finding needs pairs that
agree.

On the CPU the operating system counts how long the main thread was on a core. Unless the thread
slept in the calls, no shorter time can be true, and other processes do not disturb this count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from statistics import fmean, median, quantiles

from harness.timing.block_times import (
    BUSY,
    CALM,
    ELAPSED,
    GAP,
    LATE,
    REPORTED,
    STORE,
    Time,
    TimedBlock,
    third_quartile,
    typical,
    usual_cost_ns,
)

SLOPE_TIGHT = 0.01
"""The share of the time by which long blocks exceed short ones that may be unreported, besides
noise."""
CERTAIN, SUSPECT = 0.002, 0.07
"""Error rates of a certain finding, and of a suspicion, which leads to more pairs.

They bound the probability that noise, which is positive as often as negative, shows an excess in as
many pairs: a certain finding needs nine of nine pairs, or 12 of 13. With up to six pairs, a
suspicion needs all of them.
"""
OBVIOUS = 0.5
"""Fewer pairs suffice if all exceed the slowest of the incumbent's blocks by this share."""
WIDEST_BAND = 0.02
"""While the band (see `band`) is wider than this, a gain below it leads to more pairs."""
LEAST_PAIRS = 3
LEAST_DUE = 0.25
"""A long block must exceed a short one by at least this share of the long one's time."""
SLEEPS = 1
"""A main thread that does not sleep in its calls sleeps once: it is stopped after its block."""
LATE_NS = 500_000
"""Copying what was returned may take this much longer than twice the incumbent's time."""


@dataclass(frozen=True)
class ClockExcess:
    """Time that the candidate does not report; `certain` if noise cannot explain it."""

    message: str
    certain: bool


@dataclass(frozen=True)
class SideShares:
    """Both sides' values in one pair, as shares of the time that the candidate reports."""

    candidate: float
    incumbent: float

    @property
    def excess(self) -> float:
        return self.candidate - self.incumbent


@dataclass(frozen=True)
class PairBlocks:
    """The blocks of one class in one process pair."""

    candidate: Sequence[TimedBlock]
    incumbent: Sequence[TimedBlock]

    @property
    def has_long(self) -> bool:
        return any(map(self._is_long, self.incumbent))

    @property
    def by_cpu(self) -> bool:
        """Whether CPU times are known and the main threads do not sleep in the calls.

        Other threads may work while they sleep.
        """
        blocks = (*self.candidate, *self.incumbent)
        return all(block.cpu for block in blocks) and \
            max(map(_median_sleeps, (self.candidate, self.incumbent))) <= SLEEPS

    def whole(self, time: Time) -> SideShares:
        """Return each side's median time per block, relative to the candidate's reported time."""
        over_ns = typical(self.candidate, REPORTED)
        return SideShares(typical(self.candidate, time) / over_ns,
                          typical(self.incumbent, time) / over_ns)

    def unreported(self, cost_ns: float | None) -> SideShares:
        """Return what blocks take beyond what they report.

        It is CPU time beyond `cost_ns`, in blocks that did not wait for a core. Without such
        blocks, CPU times or `cost_ns`, it is time by our own clock.
        """
        calm = [block for block in self.candidate if block.idle <= CALM]
        if cost_ns is None or not calm or not self.by_cpu:
            return self.whole(GAP)
        usual_ns = usual_cost_ns(self.incumbent)
        return SideShares(
            third_quartile([(block.cpu_gap_ns - cost_ns) / block.ns for block in calm]),
            0.0 if usual_ns is None else (usual_ns - cost_ns) / typical(calm, REPORTED))

    def longer(self, side: Sequence[TimedBlock], time: Time) -> float:
        """Return by how many nanoseconds a side's long blocks exceed its short ones."""
        return typical([block for block in side if self._is_long(block)], time) \
            - typical([block for block in side if not self._is_long(block)], time)

    def slope(self) -> SideShares | None:
        """Return the unreported share of what long blocks take beyond short ones, None if unknown.

        A cost around each block cancels out.
        """
        over_ns = self.longer(self.candidate, REPORTED)
        return SideShares(self.longer(self.candidate, GAP) / over_ns,
                          self.longer(self.incumbent, GAP) / over_ns) if over_ns > 0 else None

    def missing_length(self) -> SideShares:
        """Return what long blocks lack of the time by which they must exceed short ones.

        The value is a share of the longest reported time, zero if nothing is missing.
        """
        time, longest = (BUSY, BUSY) if self.by_cpu else (ELAPSED, REPORTED)
        return SideShares(*(max(0.0, LEAST_DUE - self.longer(side, time) / max(map(longest, side)))
                            for side in (self.candidate, self.incumbent)))

    def late(self) -> SideShares:
        """Return how long copying the outputs takes; `incumbent` is how long it may take."""
        over_ns = typical(self.candidate, REPORTED)
        return SideShares(typical(self.candidate, LATE) / over_ns,
                          (2 * max(map(LATE, self.incumbent)) + LATE_NS) / over_ns)

    def _is_long(self, block: TimedBlock) -> bool:
        return block.calls > 2 * self._fewest_calls

    @cached_property
    def _fewest_calls(self) -> int:
        return min(block.calls for block in self.incumbent)


class ClockCheck:
    """Compares both sides' blocks, pair by pair.

    `tight_ns` is by how much a candidate's cost around a block may exceed the incumbent's. With
    fewer than `least_pairs` pairs nothing is found.
    """

    def __init__(self, tight_ns: int, least_pairs: int = LEAST_PAIRS) -> None:
        self.tight_ns, self._least_pairs = tight_ns, least_pairs
        self._classes: dict[str, list[PairBlocks]] = {}

    def add(self, candidate: Sequence[TimedBlock], incumbent: Sequence[TimedBlock],
            config_class: str = "") -> None:
        """Add the blocks of one class in its next pair."""
        self._classes.setdefault(config_class, []).append(PairBlocks(candidate, incumbent))

    def excess(self) -> ClockExcess | None:
        """Return the most certain excess of the candidate; None if its times are plausible."""
        if max(map(len, self._classes.values()), default=0) < self._least_pairs:
            return None
        findings = [self._whole_block_excess(), self._slope_excess()]
        for pairs in self._classes.values():
            findings.append(_finding([blocks.late() for blocks in pairs], 0.0,
                                     lambda _: "its answers arrive long after its blocks end"))
            findings.append(_finding(
                [blocks.missing_length() for blocks in pairs if blocks.has_long], 0.0,
                lambda _: "its longer blocks do not take longer"))
        return max((excess for excess in findings if excess is not None),
                   key=lambda excess: excess.certain, default=None)

    def _cost_ns(self) -> float | None:
        """Return the CPU time that the incumbent's blocks take beyond what they report."""
        return usual_cost_ns(block for pairs in self._classes.values() for blocks in pairs
                             for block in blocks.incumbent)

    def _whole_block_excess(self) -> ClockExcess | None:
        cost_ns = self._cost_ns()
        shares = _pair_means([[blocks.unreported(cost_ns) for blocks in pairs]
                              for pairs in self._classes.values()])
        reported_ns = [block.ns for pairs in self._classes.values() for blocks in pairs
                       for block in blocks.candidate]
        slowest = max(block.gap_ns / typical(blocks.candidate, REPORTED)
                      for pairs in self._classes.values() for blocks in pairs
                      for block in blocks.incumbent)
        return _finding(shares, self.tight_ns / fmean(reported_ns), lambda more: (
            f"by kopt's own clock its blocks take {more:.1%} longer than it reports"),
            obvious=all(share.candidate > slowest + OBVIOUS for share in shares))

    def _slope_excess(self) -> ClockExcess | None:
        slopes = [[slope for blocks in pairs if blocks.has_long and not blocks.by_cpu
                   and (slope := blocks.slope()) is not None] for pairs in self._classes.values()]
        return _finding(_pair_means(slopes), SLOPE_TIGHT, lambda more: (
            f"by kopt's own clock its calls take {more:.1%} longer than it reports"))

    def band(self, config_class: str) -> float | None:
        """Return the largest share of its time in a class that a candidate can hide unsuspected.

        Copying the outputs is included, since work may hide there. None if the pairs are too few.
        """
        cost_ns = self._cost_ns()
        excess = sorted(blocks.unreported(cost_ns).excess + blocks.whole(STORE).excess
                        for blocks in self._classes.get(config_class, ()))
        if len(excess) < self._least_pairs:
            return None
        agreeing = next((count for count in range(len(excess) + 1)
                         if _is_suspect(count, len(excess))), 0)
        return max(0.0, excess[agreeing - 1]) if agreeing else None


def _finding(shares: Sequence[SideShares], tight: float, words: Callable[[float], str], *,
             obvious: bool = False) -> ClockExcess | None:
    """Return an excess if more pairs are above `tight` than noise is likely to explain."""
    above = sum(share.excess > tight for share in shares)
    if not _is_suspect(above, len(shares)):
        return None
    more = median(share.excess for share in shares)
    lower, _, upper = quantiles((share.incumbent for share in shares), n=4)
    return ClockExcess(words(more), obvious or (_noise_probability(above, len(shares)) <= CERTAIN
                                                and more > tight + upper - lower))


def _is_suspect(above: int, pairs: int) -> bool:
    """Return whether `above` of the pairs are too many for noise; of up to six, all are needed."""
    return pairs >= LEAST_PAIRS and (above == pairs or _noise_probability(above, pairs) <= SUSPECT)


def _noise_probability(above: int, pairs: int) -> float:
    """Return the probability that `above` or more of the pairs are above zero by noise."""
    return math.ldexp(sum(math.comb(pairs, count) for count in range(above, pairs + 1)), -pairs)


def _pair_means(classes: Sequence[Sequence[SideShares]]) -> list[SideShares]:
    """Return each pair's mean over the classes; the last pairs may lack some classes."""
    pairs = ([share for share in pair if share is not None] for pair in zip_longest(*classes))
    return [SideShares(fmean(share.candidate for share in pair),
                       fmean(share.incumbent for share in pair)) for pair in pairs]


def _median_sleeps(blocks: Sequence[TimedBlock]) -> float:
    return median(block.cpu.sleeps for block in blocks if block.cpu)
