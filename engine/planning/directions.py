"""Directions for a search: which knobs to move together, and which of them are new."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

import msgspec

from engine.planning.bottlenecks import TunableBottleneck
from engine.planning.stagnation import Depth

COARSE = ("memory", "compute", "latency")
"""Limiters that a roofline tells; the others come from compilers and name instructions."""


class SearchDirection(msgspec.Struct, frozen=True, kw_only=True):
    """Some knobs moved together against one bottleneck."""

    lead: TunableBottleneck
    knobs: tuple[str, ...]

    @property
    def hypothesis(self) -> str:
        return words(self.lead, self.knobs)


def words(lead: TunableBottleneck, knobs: Sequence[str]) -> str:
    """Return a search's hypothesis, which also names its direction."""
    return f"{' and '.join(knobs)} against {lead.bottleneck.limiter}: {lead.bottleneck.advice}"


def new(leads: Sequence[TunableBottleneck], tried: Collection[str],
        depth: Depth) -> list[SearchDirection]:
    """Return the directions that no hypothesis in `tried` has named, the most different first.

    Those of one bottleneck take turns with the others'. Below the review, what compilers say goes
    first; at the state of the art all knobs of a bottleneck move at once before some of them do.
    """
    seen = {_moved(text) for text in tried}
    ordered = sorted(leads, key=lambda lead: lead.bottleneck.limiter in COARSE) \
        if depth == "instructions" else list(leads)
    columns = [list(_sets(lead, depth)) for lead in ordered]
    found: list[SearchDirection] = []
    for row in range(max(map(len, columns), default=0)):
        for column in columns:
            if row < len(column) and (moved := frozenset(column[row].knobs)) not in seen:
                seen.add(moved)
                found.append(column[row])
    return found


def _sets(lead: TunableBottleneck, depth: Depth) -> Iterator[SearchDirection]:
    single = [(name,) for name in lead.knobs]
    several = [pair for pair in pairwise(lead.knobs) if len(lead.knobs) > 2]
    every = [tuple(lead.knobs)] if len(lead.knobs) > 1 else []
    order = [*every, *several, *single] if depth == "state of the art" else \
        [*single, *several, *every]
    for knobs in order:
        yield SearchDirection(lead=lead, knobs=knobs)


def _moved(hypothesis: str) -> frozenset[str]:
    """Return the knobs that a hypothesis of `words` names."""
    return frozenset(hypothesis.partition(" against ")[0].split(" and "))
