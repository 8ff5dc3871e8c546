"""Directions for a search: which knobs to move together, and which of them are new."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from engine.journal.records import Slot
from engine.planning.bottlenecks import TunableBottleneck
from engine.task import Task

Depth = Literal["review", "instructions", "state of the art"]
"""How deep a stagnation review goes."""
COARSE = ("memory", "compute", "latency")
"""Limiters from the roofline; the others come from compilers and name instructions."""


class TriedDirections(msgspec.Struct, frozen=True, kw_only=True):
    """The directions that slots have followed on the current best."""

    knobs: frozenset[frozenset[str]] = frozenset()
    """The sets of knobs that a search moved together."""
    ideas: frozenset[tuple[str, str, str]] = frozenset()
    """Ideas of reviews: key, and limiter and config class of the bottleneck they were aimed at."""
    split: bool = False
    """Whether a slot has searched for config classes that need kernels of their own."""

    @classmethod
    def of(cls, slots: Iterable[Slot | Task]) -> TriedDirections:
        slots = list(slots)
        return cls(knobs=frozenset(frozenset(slot.knobs) for slot in slots if slot.knobs),
                   ideas=frozenset((slot.idea, slot.limiter, slot.config_class)
                                   for slot in slots if slot.idea),
                   split=any(slot.backend == "split" for slot in slots))


class SearchDirection(msgspec.Struct, frozen=True, kw_only=True):
    """Knobs to move together against one bottleneck."""

    tunable: TunableBottleneck
    knobs: tuple[str, ...]

    @property
    def hypothesis(self) -> str:
        bottleneck = self.tunable.bottleneck
        return f"{' and '.join(self.knobs)} against {bottleneck.limiter}: {bottleneck.advice}"


def new(bottlenecks: Sequence[TunableBottleneck], tried: TriedDirections,
        depth: Depth) -> list[SearchDirection]:
    """Return the directions whose knobs no search has moved together, the most different first.

    Bottlenecks take turns. At depth `instructions`, bottlenecks that a compiler named come first;
    at `state of the art`, all knobs of a bottleneck move at once before single ones do.
    """
    seen = set(tried.knobs)
    ordered = sorted(bottlenecks, key=lambda tunable: tunable.bottleneck.limiter in COARSE) \
        if depth == "instructions" else list(bottlenecks)
    columns = [list(_directions(tunable, depth)) for tunable in ordered]
    directions: list[SearchDirection] = []
    for row in range(max(map(len, columns), default=0)):
        for column in columns:
            if row < len(column) and (moved := frozenset(column[row].knobs)) not in seen:
                seen.add(moved)
                directions.append(column[row])
    return directions


def _directions(tunable: TunableBottleneck, depth: Depth) -> Iterator[SearchDirection]:
    single = [(name,) for name in tunable.knobs]
    pairs = [pair for pair in pairwise(tunable.knobs) if len(tunable.knobs) > 2]
    every = [tuple(tunable.knobs)] if len(tunable.knobs) > 1 else []
    order = [*every, *pairs, *single] if depth == "state of the art" else [*single, *pairs, *every]
    for knobs in order:
        yield SearchDirection(tunable=tunable, knobs=knobs)
