"""Which of many configurations are worth more blocks: a race that clear losers leave early.

A race of Maron and Moore (Hoeffding races, 1994): an entry whose best case is slower than the
leader's worst case is out. A case is the mean of the logarithms of its block times, give or take
what their noise may do to it: no more than `bound` for any block, and by Hoeffding's inequality
less for the mean of many. Heats follow each other as in successive halving (Jamieson and Talwalkar
2016): fewer entries, more blocks, less noise. As long as no block is off by more than the bound,
the fastest entry can leave only by Hoeffding's share of error, or where more than `keep` others are
as fast as can be told. Times are taken as they come: who takes them, on which device, is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Generic, TypeVar

CLEAR = 1.5
"""So many times slower than the best in its first blocks is out."""
FIRST_BOUND = math.log(CLEAR) / 2
ERROR = 1e-3

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Heat:
    """Blocks that every entry gets, how far off one may be (in logarithms), how many go on."""

    blocks: int
    bound: float
    keep: int = 1 << 30


HEATS = (Heat(blocks=2, bound=0.03, keep=32), Heat(blocks=4, bound=0.015, keep=12),
         Heat(blocks=8, bound=0.0075, keep=4))
"""After the first blocks: on a card that nobody else uses then, beside the leader."""


@dataclass(frozen=True)
class Case:
    """An entry's logarithmic time: as measured, in its best and in its worst case."""

    mean: float
    best: float
    worst: float


def radius(blocks: int, bound: float, error: float = ERROR) -> float:
    """Return how far off the mean of so many blocks may be, each of which is off by `bound`."""
    return min(bound, 2 * bound * math.sqrt(math.log(2 / error) / (2 * blocks)))


def case(times: Sequence[float], bound: float, error: float = ERROR) -> Case:
    """Sum up the logarithms of an entry's block times.

    A block that was held up by something else is cut to what the bound allows above the fastest.
    """
    least = min(times)
    mean = fmean(min(one, least + 2 * bound) for one in times)
    off = radius(len(times), bound, error)
    return Case(mean, mean - off, mean + off)


def lost(ns: float, best_ns: float) -> bool:
    """Tell whether one look is enough: what takes so much longer will not win."""
    return ns > CLEAR * best_ns


class Race(Generic[K]):
    """The entries of one heat and their block times; the error is shared among all decisions."""

    def __init__(self, bound: float, *, entries: int, error: float = ERROR) -> None:
        self.bound = bound
        self._error = error / max(1, entries)
        self.times: dict[K, list[float]] = {}

    def add(self, key: K, ns: float) -> None:
        self.times.setdefault(key, []).append(math.log(max(ns, 1e-3)))

    def case(self, key: K) -> Case:
        return case(self.times[key], self.bound, self._error)

    def withdraw(self, key: K) -> None:
        """Take out an entry that turned out to be wrong: nobody is to lose to it."""
        self.times.pop(key, None)

    @property
    def order(self) -> list[K]:
        """The entries, the fastest first."""
        return sorted(self.times, key=lambda key: self.case(key).mean)

    def out(self) -> dict[K, str]:
        """Return who has clearly lost, and why; the leader never has."""
        if not self.times:
            return {}
        leader = self.case(self.order[0])
        return {key: f"at least {math.expm1(self.case(key).best - leader.worst):.1%} slower than "
                     "the best" for key in self.times if self.case(key).best > leader.worst}

    def halved(self, keep: int) -> dict[K, str]:
        """Return who leaves because only so many can go on, and why."""
        return {key: f"not among the {keep} fastest" for key in self.order[keep:]}


def run(entries: Iterable[K], time: Callable[[K], float], right: Callable[[K], bool],
        heats: Sequence[Heat] = HEATS, error: float = ERROR) -> tuple[K | None, dict[K, str]]:
    """Race entries to the end; returns the winner and why every other one left.

    `time` gives one block's nanoseconds a call, no finite number when it fails; `right` tells
    whether an entry computes what it should, and is asked before anyone loses to it.
    """
    left = list(entries)
    why: dict[K, str] = {}
    for heat in heats:
        race: Race[K] = Race(heat.bound, entries=len(left) * sum(h.blocks for h in heats),
                             error=error)
        for _ in range(heat.blocks):
            for key in left:
                if math.isfinite(ns := time(key)):
                    race.add(key, ns)
                else:
                    race.withdraw(key)
                    why[key] = "failed"
            while race.order and not right(race.order[0]):
                why[race.order[0]] = "wrong"
                race.withdraw(race.order[0])
            why |= race.out()
            left = [key for key in race.order if key not in why]
            for key in set(race.times) - set(left):
                race.withdraw(key)
        why |= race.halved(heat.keep)
        left = left[:heat.keep]
        if len(left) <= 1:
            break
    for key in left[1:]:
        why[key] = "no faster in the last heat"
    return (left[0] if left else None), why
