"""Paired timing: incumbent and candidate in two processes, alternating block by block.

Each process pair gives one log-ratio per config class. The interval comes from several pairs, since
a process has a bias of its own that no amount of sampling inside it removes. Sampling stops
early when every class is settled at a look or the verdict is lost or hopeless (`outcome`), else
after the last look.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from harness.case import Case
from harness.errors import Cancelled
from harness.isolation.rpc import Peer
from harness.timing import stats
from harness.timing.clock_check import LEAST_PAIRS, WIDEST_BAND, ClockCheck
from harness.timing.outcome import is_hopeless, is_lost, is_settled
from harness.timing.paired_blocks import PairedBlocks, VoidReason
from harness.timing.plan import Plan
from harness.timing.timed_block import TamperedTiming
from harness.timing.timed_slots import SlotSource

CLOCK_TIGHT_NS = 30_000
CLOCK_TIGHT_GPU_NS = 300_000
"""On an H200, 0.17 to 0.26 ms of a block are outside of its events: launches, and the wait."""
CLOCK_PAIRS = 4
"""Least number of pairs for a finding on a CPU, where one of three pairs is often disturbed."""
LEAST_CLOCK_LOOKS = 2
"""Number of looks with a wrong clock that prove tampering; at the last look, one is enough."""
ORDER = ("incumbent", "candidate")
"""Order of the sides in every other pair; the other pairs reverse it."""

@dataclass(frozen=True, kw_only=True)
class ClassTiming:
    """What the pairs measured for one config class; latencies are medians in microseconds.

    `other_ratios` are those of the time that is not scored, empty if there is only one time.
    `again` are those of a second measurement, which a gain below the margin needs.
    """

    config_class: str
    candidate_us: float
    incumbent_us: float
    log_ratios: tuple[float, ...]
    other_ratios: tuple[float, ...] = ()
    other_us: float | None = None
    incumbent_other_us: float | None = None
    again: tuple[float, ...] = ()


@dataclass(frozen=True)
class RunnerPair:
    """A runner of each side, and the blocks that time them, one entry per class."""

    number: int
    peers: Mapping[str, Peer]
    classes: Sequence[PairedBlocks]


@dataclass
class _ClassSamples:
    """The samples of one class, one per pair; times in microseconds by side."""

    log_ratios: list[float] = field(default_factory=list)
    other_ratios: list[float] = field(default_factory=list)
    us: dict[str, list[float]] = field(default_factory=dict)
    other_us: dict[str, list[float]] = field(default_factory=dict)

    def add(self, blocks: PairedBlocks, log_ratio: float, other_ratio: float | None) -> None:
        self.log_ratios.append(log_ratio)
        if other_ratio is not None:
            self.other_ratios.append(other_ratio)
        for side in ORDER:
            self.us.setdefault(side, []).append(blocks.us_per_call(side))
            if (other_us := blocks.other_us(side)) is not None:
                self.other_us.setdefault(side, []).append(other_us)

    def timing(self, config_class: str) -> ClassTiming:
        other_us = {side: median(values) for side, values in self.other_us.items()}
        return ClassTiming(config_class=config_class, log_ratios=tuple(self.log_ratios),
                           other_ratios=tuple(self.other_ratios),
                           other_us=other_us.get("candidate"),
                           incumbent_other_us=other_us.get("incumbent"),
                           candidate_us=median(self.us["candidate"]),
                           incumbent_us=median(self.us["incumbent"]))


class PairedTiming:
    """Times process pairs until `outcome` says that more would change nothing.

    A class that is settled at a look is left out of the pairs after it. At most `at_once` pairs
    hold buffers at a time, and only one of them is timed. With `quiet`, not even buffers are
    prepared concurrently, since a kernel may then time its configurations. `alone` and `freeze` are
    those of PairedBlocks. `on_pair` receives a pair's number as it begins, and the largest possible
    number.
    """

    def __init__(self, plan: Plan, cases: Sequence[Case], source: SlotSource,
                 start: Callable[[Sequence[str]], Sequence[Peer]], *,
                 end: Callable[[Iterable[Peer]], None] | None = None,
                 on_pair: Callable[[int, int], None] | None = None, alone: bool = False,
                 freeze: bool = True, at_once: int = 1, quiet: bool = False,
                 voids: VoidReason | None = None, cancel: threading.Event | None = None) -> None:
        self.plan = plan
        self.cases = list(cases)
        self._source = source
        self._start = start
        self._end = end or _end
        self._on_pair = on_pair
        self._alone, self._freeze, self._quiet = alone, freeze, quiet or alone
        self._at_once = 1 if self._quiet else at_once
        self._ready: deque[RunnerPair] = deque()
        self._voids = voids
        self._cancel = cancel
        self._samples = {case.config_class: _ClassSamples() for case in cases}
        self._clock = ClockCheck(CLOCK_TIGHT_NS, CLOCK_PAIRS) if alone \
            else ClockCheck(CLOCK_TIGHT_GPU_NS)
        self._clock_failures = 0
        self.suspicion = ""
        """What is odd about the candidate's clock and might be noise."""
        self.damage: dict[str, str] = {}
        """By side, what timed calls overwrote besides their outputs."""
        self.judged_calls = 0
        """Number of the candidate's timed calls, all of whose answers were compared."""
        self.launches: dict[str, str] = {}
        """How the calls of each class were launched."""
        self.count = 0
        """Number of pairs."""
        self.timed_ns = 0
        """Total time of the timed calls, by the runners' clocks."""
        self.voided: Counter[str] = Counter()
        """Number of void blocks by reason."""

    def run(self, after: Callable[[Peer], None] | None = None) -> list[ClassTiming]:
        """Measure; `after` receives the candidate's runner after the last pair of each look.

        Raises PeerError or PeerDied if a kernel fails while it is timed; TamperedTiming; Cancelled.
        """
        last = self.plan.looks[-1]
        try:
            for number in range(1, last + 1):
                if self._cancel is not None and self._cancel.is_set():
                    raise Cancelled("stopped while timing")
                if self._on_pair is not None:
                    self._on_pair(number, last)
                if not self._ready:
                    self._open(number)
                is_look = number in self.plan.looks
                self._time_pair(self._ready.popleft(), after if is_look else None)
                self.count = number
                estimates, plan = self._estimates().values(), self.plan
                if is_hopeless(estimates, plan.margin, plan.tolerance) or (is_look and any(
                        is_lost(value, plan.tolerance) for value in estimates)):
                    break
                if is_look and not self._is_clock_suspect(number) and \
                        not self.gain_within_band and self._drop_settled():
                    break
        finally:
            self._end(peer for pair in self._ready for peer in pair.peers.values())
            for blocks in (blocks for pair in self._ready for blocks in pair.classes):
                blocks.close()
        return [samples.timing(name) for name, samples in self._samples.items()]

    @property
    def bands(self) -> dict[str, float]:
        """By class, where known, the share by which times could have been forged undetected."""
        return {name: band for name in self._samples
                if (band := self._clock.band(name)) is not None}

    @property
    def gain_within_band(self) -> str:
        """A class whose gain is smaller than what a forged clock could hide; empty if none."""
        for name, band in self.bands.items():
            estimate = stats.estimate(self._samples[name].log_ratios, self.plan.alpha_look)
            if band > WIDEST_BAND and estimate.low > 0 and math.expm1(estimate.mean) < band:
                return name
        return ""

    def _estimates(self) -> dict[str, stats.Estimate]:
        return {case.config_class: stats.estimate(
            self._samples[case.config_class].log_ratios, self.plan.alpha_look)
            for case in self.cases}

    def _drop_settled(self) -> bool:
        """Drop the settled classes; return whether none is left."""
        estimates = self._estimates()
        self.cases = [case for case in self.cases if not is_settled(
            estimates[case.config_class], self.plan.margin, self.plan.tolerance,
            self._other_estimate(case.config_class))]
        return not self.cases

    def _other_estimate(self, name: str) -> stats.Estimate | None:
        """Return the estimate of a class's time that is not scored, None if there is none."""
        ratios = self._samples[name].other_ratios
        return stats.estimate(ratios, self.plan.alpha_look) if ratios else None

    def _open(self, first: int) -> None:
        """Start and prepare the next pairs: at most `at_once`, none after the next look."""
        numbers = range(first, min(first + self._at_once,
                                   1 + next(look for look in self.plan.looks if look >= first)))
        orders = [ORDER if number % 2 else ORDER[::-1] for number in numbers]
        peers = iter(self._start([side for order in orders for side in order]))
        for number, order in zip(numbers, orders, strict=True):
            sides = {side: next(peers) for side in order}
            self._ready.append(RunnerPair(number, sides, [
                PairedBlocks(self.plan, case, sides, order, self._source, alone=self._alone,
                             freeze=self._freeze, voids=self._voids)
                for case in self.cases]))
        for same_class in zip(*(pair.classes for pair in self._ready), strict=True):
            for blocks in same_class:
                blocks.prepare(concurrently=not self._quiet)
            for blocks in same_class if not self._quiet else ():
                blocks.wait_prepared()

    def _time_pair(self, pair: RunnerPair, after: Callable[[Peer], None] | None) -> None:
        try:
            for blocks in pair.classes:
                self._time_class(blocks)
            if after is not None:
                after(pair.peers["candidate"])
        finally:
            self._end(pair.peers.values())
            for blocks in pair.classes:
                blocks.close()

    def _time_class(self, blocks: PairedBlocks) -> None:
        name = blocks.case.config_class
        blocks.warm()
        self._samples[name].add(blocks, *blocks.run())
        self.timed_ns += sum(block.ns for side in ORDER for block in blocks.blocks[side])
        self.judged_calls += blocks.judged_calls
        for side, damage in blocks.damage.items():
            self.damage.setdefault(side, f"class {name}: {damage}")
        self._clock.add(blocks.scored["candidate"], blocks.scored["incumbent"], name)
        self.launches[name] = blocks.launched
        self.voided.update(blocks.voided)
        blocks.release()

    def _is_clock_suspect(self, pairs: int) -> bool:
        """Return whether a candidate's blocks take longer by our clock than by its own.

        A suspicion leads to more pairs. Raises TamperedTiming if it is certain, but not in a
        screening, since a verdict judges what a screening passes.
        """
        excess = self._clock.excess()
        # three pairs agree by chance in one of eight verdicts: no flag if more pairs may follow
        is_flag = pairs > LEAST_PAIRS or pairs == self.plan.looks[-1]
        self.suspicion = excess.message if excess is not None and is_flag else ""
        if excess is None or not excess.certain:
            return excess is not None
        self._clock_failures += 1
        if self._clock_failures >= LEAST_CLOCK_LOOKS or pairs == self.plan.looks[-1]:
            raise TamperedTiming(excess.message)
        return True


def _end(peers: Iterable[Peer]) -> None:
    ending = list(peers)
    for peer in ending:
        peer.kill()
    for peer in ending:
        peer.close()
