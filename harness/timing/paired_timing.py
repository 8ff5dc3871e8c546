"""Paired timing: incumbent and candidate in two processes, alternating block by block.

One process pair gives one log-ratio per config class. Several pairs give the interval, because a
process has a bias of its own that no amount of sampling inside it removes. Sampling stops early
once every class is settled, and at the last look at the latest.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness.case import Case
from harness.errors import Cancelled
from harness.isolation.rpc import Peer
from harness.timing import stats
from harness.timing.clock_check import ClockCheck
from harness.timing.input_mutation import InputMutation
from harness.timing.outcome import SURE, is_settled
from harness.timing.paired_blocks import PairedBlocks, TamperedTiming, VoidReason
from harness.timing.plan import Plan

CLOCK_TIGHT_NS = 200_000
CLOCK_TIGHT_GPU_NS = 1_000_000
"""Around a GPU's block 0.1 to 1.2 ms pass on an H200: launches, events, what is overwritten."""
CONVICTED = 2
"""Looks at which a clock has to be off."""
ORDER = ("incumbent", "candidate")
"""Of the sides in every other pair; in the others it is turned round."""
REMEMBERED = 1.25
"""Calls on new contents may take so many times those on old ones."""
PROBED_AGAIN = 3
"""Probes of a pair that must all say so."""
REMEMBERED_PAIRS = 3
"""Pairs in a row in which they take longer, for a verdict of their own."""


@dataclass(frozen=True, kw_only=True)
class ClassTiming:
    """What the pairs said of one config class; latencies are medians in microseconds.

    `other_ratios` are of the time that is not scored, empty where there is only one; `again` are
    those of a second measurement, which a gain below the margin needs.
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
    """A runner of each side, and what they are to be timed on, class by class."""

    number: int
    peers: Mapping[str, Peer]
    duels: Sequence[PairedBlocks]


class MemoisedResults(TamperedTiming):
    """The candidate is faster on contents that it has seen before."""


class PairedTiming:
    """Collects process pairs until the plan says that it is enough; a class that is settled at a
    look is left out of those that follow.

    At most `at_once` pairs hold their buffers at a time; only one of them is timed. With `quiet`
    not even buffers are prepared beside each other: a kernel may time its configurations then.
    `alone` stops each side while the other one is timed: on a CPU they share the machine.
    """

    def __init__(self, plan: Plan, cases: Sequence[Case],
                 start: Callable[[Sequence[str]], Sequence[Peer]], *,
                 end: Callable[[Iterable[Peer]], None] | None = None,
                 on_pair: Callable[[int, int], None] | None = None, alone: bool = False,
                 at_once: int = 1, quiet: bool = False,
                 voids: VoidReason | None = None, cancel: threading.Event | None = None) -> None:
        self.plan = plan
        self.cases = list(cases)
        self._start = start
        self._end = end or _end
        self._on_pair = on_pair
        self._alone, self._quiet = alone, quiet or alone
        self._at_once = 1 if self._quiet else at_once
        self._ready: deque[RunnerPair] = deque()
        self._voids = voids
        self._cancel = cancel
        self._suspicions = 0
        self.suspicion = ""
        """What is odd about the candidate's clock, where noise might explain it."""
        self._clock = ClockCheck(CLOCK_TIGHT_NS if alone else CLOCK_TIGHT_GPU_NS)
        self._remembered: dict[str, int] = {case.config_class: 0 for case in cases}
        self.log_ratios: dict[str, list[float]] = {c.config_class: [] for c in cases}
        self._others: dict[str, list[float]] = {c.config_class: [] for c in cases}
        self._us: dict[tuple[str, str], list[float]] = {}
        self._other_us: dict[tuple[str, str], list[float]] = {}
        self.launches: dict[str, str] = {}
        """How each class was launched, in words."""
        self.count = 0
        self.timed_ns = 0
        """How many pairs there were, and how long their timed calls took by the runners."""
        self.memory = ""
        """What looks like a memory of results, where the pairs were too few to be sure."""
        self.voided: Counter[str] = Counter()
        """How many blocks did not count, by reason."""

    def run(self, after: Callable[[Peer, Case, InputMutation], None] | None = None,
            ) -> list[ClassTiming]:
        """Measure; `after` sees the candidate's runner after the last pair of each look.

        Raises PeerError, PeerDied (the kernel failed while timed) or Tampered.
        """
        last = self.plan.looks[-1]
        try:
            for number in range(1, last + 1):
                if self._cancel is not None and self._cancel.is_set():
                    raise Cancelled("stopped while timing")
                if not self._ready:
                    self._open(number)
                self._pair(self._ready.popleft(), after if number in self.plan.looks else None)
                self.count = number
                if self._on_pair is not None:
                    self._on_pair(number, last)
                if number in self.plan.looks and not self._suspected(number) \
                        and number not in self._remembered.values() and self._settle():
                    break
        finally:
            self._end(peer for pair in self._ready for peer in pair.peers.values())
        return [ClassTiming(config_class=name, log_ratios=tuple(values),
                            other_ratios=tuple(self._others[name]),
                            other_us=self._other("candidate", name),
                            incumbent_other_us=self._other("incumbent", name),
                            candidate_us=median(self._us["candidate", name]),
                            incumbent_us=median(self._us["incumbent", name]))
                for name, values in self.log_ratios.items()]

    @property
    def band(self) -> float | None:
        """The share by which times could have been forged unseen, None where it is not known."""
        return self._clock.band

    def _other(self, side: str, name: str) -> float | None:
        values = self._other_us.get((side, name))
        return median(values) if values else None

    def _settle(self) -> bool:
        """Leave out the classes that are settled; tell whether it is enough: none is left, or one
        has clearly lost beyond the tolerance.
        """
        estimates = {case.config_class: stats.estimate(self.log_ratios[case.config_class],
                                                       self.plan.alpha_look) for case in self.cases}
        if any(e.pairs < 2 for e in estimates.values()):
            return False
        if any(e.at(SURE / 5)[1] < -5 * math.log1p(self.plan.tolerance)
               for e in estimates.values()):
            return True
        self.cases = [case for case in self.cases if not is_settled(
            estimates[case.config_class], self.plan.margin, self.plan.tolerance)]
        return not self.cases

    def _open(self, first: int) -> None:
        """Start the pairs up to the next look, and prepare them beside each other."""
        numbers = range(first, min(first + self._at_once,
                                   1 + next(look for look in self.plan.looks if look >= first)))
        orders = [ORDER if number % 2 else ORDER[::-1] for number in numbers]
        peers = iter(self._start([side for order in orders for side in order]))
        for number, order in zip(numbers, orders, strict=True):
            sides = {side: next(peers) for side in order}
            self._ready.append(RunnerPair(number, sides, [
                PairedBlocks(self.plan, case, sides, order, alone=self._alone, voids=self._voids)
                for case in self.cases]))
        for duels in zip(*(pair.duels for pair in self._ready), strict=True):
            for duel in duels:
                duel.prepare(beside=not self._quiet)
            for duel in duels if not self._quiet else ():
                duel.prepared()

    def _pair(self, pair: RunnerPair,
              after: Callable[[Peer, Case, InputMutation], None] | None) -> None:
        try:
            for duel in pair.duels:
                self._duel(duel, pair.number)
            for duel in pair.duels:
                if after is not None:
                    after(pair.peers["candidate"], duel.case, duel.contents["candidate"])
        finally:
            self._end(pair.peers.values())

    def _duel(self, duel: PairedBlocks, number: int) -> None:
        name = duel.case.config_class
        duel.warm()
        scored, other = duel.run()
        self.log_ratios[name].append(scored)
        if other is not None:
            self._others[name].append(other)
        for side in ORDER:
            self.timed_ns += sum(block.ns for block in duel.blocks[side])
            self._us.setdefault((side, name), []).append(duel.us_per_call(side))
            if (other_us := duel.other_us(side)) is not None:
                self._other_us.setdefault((side, name), []).append(other_us)
        self._clock.add(duel.blocks["candidate"], duel.blocks["incumbent"])
        self.launches[name] = duel.launched
        self.voided.update(duel.voided)
        self._look_for_memory(duel, number)
        duel.let_go()

    def _look_for_memory(self, duel: PairedBlocks, number: int) -> None:
        """Probe in the first pair, and again while it looks as if results were remembered."""
        name = duel.case.config_class
        if self.plan.screening or self._remembered[name] < number - 1:
            return
        ratio = math.inf
        for _ in range(PROBED_AGAIN):  # noise is not as large every time
            ratio = min(ratio, duel.probe())
            if ratio <= REMEMBERED:
                return
        self._remembered[name] += 1
        told = f"class {name}: calls on new contents take {ratio:.3g} times as long as on old ones"
        if self._remembered[name] >= REMEMBERED_PAIRS:
            raise MemoisedResults(told)
        self.memory = told if number == self.plan.looks[-1] else ""

    def _suspected(self, pairs: int) -> bool:
        """Tell whether a candidate's blocks take longer by our clock than by its own.

        What looks like it is measured further; raises Tampered when it is certain. A screening
        accuses nobody: what it lets pass, a verdict will judge.
        """
        excess = self._clock.excess()
        self.suspicion = "" if excess is None else excess.told
        if excess is None or not excess.certain:
            return excess is not None
        self._suspicions += 1
        if self._suspicions >= CONVICTED or pairs == self.plan.looks[-1]:
            raise TamperedTiming(excess.told)
        return True


def _end(peers: Iterable[Peer]) -> None:
    ending = list(peers)
    for peer in ending:
        peer.kill()
    for peer in ending:
        peer.close()
