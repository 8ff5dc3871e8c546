"""Directions for the next round, and the stagnation reviews that demand new ones.

A search's direction is the knobs that it moves together. A review follows rounds without a gain and
goes deeper each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from engine.journal.records import Slot
from engine.knowledge import strategy_table
from engine.planning.bottlenecks import TunableBottleneck
from engine.task import Task

Depth = Literal["review", "instructions", "state of the art"]
"""How deep a stagnation review goes."""
ADVICE = "advice"
"""The key of the idea that says what kopt advises against a bottleneck."""
COARSE = ("memory", "compute", "latency")
"""Limiters from the roofline; the others come from compilers and name instructions."""
DIRECTIONS = 3
"""A review names at least this many directions."""


class TriedDirections(msgspec.Struct, frozen=True, kw_only=True):
    """The directions that slots have followed on the current best."""

    knobs: frozenset[frozenset[str]] = frozenset()
    """The sets of knobs that a search moved together."""
    ideas: frozenset[tuple[str, str, str]] = frozenset()
    """Of each idea its key, and limiter and config class of the bottleneck that it was aimed at."""
    lost: frozenset[frozenset[str]] = frozenset()
    """The sets of knobs whose search gained nothing, on any best of the campaign."""
    lost_ideas: frozenset[str] = frozenset()
    """The keys of ideas that gained nothing, on any best of the campaign."""
    transforms: frozenset[str] = frozenset()
    """The transformations of the source that slots have made."""
    lost_transforms: frozenset[str] = frozenset()
    """The transformations that gained nothing, on any best of the campaign."""
    split: bool = False
    """Whether a slot has searched for config classes that need kernels of their own."""

    @classmethod
    def of(cls, slots: Iterable[Slot | Task]) -> TriedDirections:
        slots = list(slots)
        return cls(knobs=frozenset(frozenset(slot.knobs) for slot in slots if slot.knobs),
                   ideas=frozenset((slot.idea, slot.limiter, slot.config_class)
                                   for slot in slots if slot.idea),
                   transforms=transforms_of(slots),
                   split=any(slot.backend == "split" for slot in slots))


def transforms_of(slots: Iterable[Slot | Task]) -> frozenset[str]:
    return frozenset(slot.option for slot in slots if slot.backend == "transform")


class SearchDirection(msgspec.Struct, frozen=True, kw_only=True):
    """Knobs to move together against one bottleneck."""

    tunable: TunableBottleneck
    knobs: tuple[str, ...]

    @property
    def hypothesis(self) -> str:
        bottleneck = self.tunable.bottleneck
        return f"{' and '.join(self.knobs)} against {bottleneck.limiter}: {bottleneck.advice}"


class _Level(msgspec.Struct, frozen=True):
    """What a review demands after some rounds in a row without a gain."""

    depth: Depth
    rounds_without_gain: int
    width: int
    demands: str


_LEVELS = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(),
                              type=dict[str, tuple[_Level, ...]])["level"]
"""The levels of reviews, the mildest first."""
ROUNDS_TO_DEEPEST = _LEVELS[-1].rounds_without_gain


class BottleneckPlace(msgspec.Struct, frozen=True):
    """Where an idea is aimed: what limits the incumbent, and in which config class."""

    limiter: str
    config_class: str = ""

    @classmethod
    def of(cls, tunable: TunableBottleneck) -> BottleneckPlace:
        return cls(tunable.bottleneck.limiter, tunable.bottleneck.config_class)

    def __str__(self) -> str:
        return f"against {self.limiter}" + (f" in {self.config_class}" if self.config_class else "")


class PlannedIdea(msgspec.Struct, frozen=True, kw_only=True):
    """A hypothesis in one sentence, aimed at a bottleneck or at none in particular."""

    key: str
    """As recorded in the journal."""
    text: str
    tunable: TunableBottleneck | None = None
    is_repeat: bool = False
    """Whether a review proposes it again after a slot has followed it on this best."""

    @property
    def place(self) -> BottleneckPlace:
        return BottleneckPlace("") if self.tunable is None else BottleneckPlace.of(self.tunable)

    @property
    def strategy(self) -> str:
        return strategy_of(self.key, self.place.limiter)

    def aimed(self, tunable: TunableBottleneck) -> PlannedIdea:
        """Return the idea against a bottleneck, which its text names."""
        return replace(self, tunable=tunable, text=f"{self.text}, {BottleneckPlace.of(tunable)}")


def strategy_of(key: str, limiter: str) -> str:
    """Return the strategy that the idea with a key follows: kopt's advice is one of the table's."""
    row = strategy_table.shown(limiter) if key == ADVICE and limiter else None
    return key if row is None else row.key


class StagnationReview(msgspec.Struct, frozen=True, kw_only=True):
    """What a round has to do after several rounds in a row without a gain.

    `width` multiplies the trials of its searches. `ideas` are at least three, and new on this best
    unless they are repeats.
    """

    depth: Depth
    rounds_without_gain: int
    demands: str
    width: int
    ideas: tuple[PlannedIdea, ...]


NOTHING = TriedDirections()


def review(rounds_without_gain: int, tried: TriedDirections = NOTHING,
           bottlenecks: Sequence[TunableBottleneck] = ()) -> StagnationReview | None:
    """Return the review after some rounds in a row without a gain; None if they are too few.

    If fewer than DIRECTIONS ideas are new, tried ones are aimed at those of the `bottlenecks` where
    they were not tried; if these are still too few, tried ones are repeated.
    """
    levels = [level for level in _LEVELS if level.rounds_without_gain <= rounds_without_gain]
    if not levels:
        return None
    level = levels[-1]
    ideas = [PlannedIdea(key=key, text=text)
             for shallower in reversed(levels)
             for key, text in strategy_table.review_sentences(shallower.depth).items()]
    tried_keys = {key for key, *_ in tried.ideas}
    new = [idea for idea in ideas if idea.key not in tried_keys]
    tried_ideas = [idea for idea in ideas if idea.key in tried_keys]
    first_at = {BottleneckPlace.of(tunable): tunable for tunable in reversed(bottlenecks)}
    aimed_anew = [idea.aimed(first_at[place])
                  for place in dict.fromkeys(map(BottleneckPlace.of, bottlenecks))
                  for idea in tried_ideas
                  if (idea.key, place.limiter, place.config_class) not in tried.ideas]
    repeats = [replace(idea, is_repeat=True, text=f"again: {idea.text}") for idea in tried_ideas]
    return StagnationReview(
        depth=level.depth, rounds_without_gain=rounds_without_gain, demands=level.demands,
        width=level.width,
        ideas=(*new, *[*aimed_anew, *repeats][:max(0, DIRECTIONS - len(new))]))


def named(hypotheses: Sequence[str], ideas: Sequence[PlannedIdea]) -> tuple[str, ...]:
    """Return the directions that a review names: its searches, and ideas up to DIRECTIONS."""
    return (*hypotheses, *(idea.text for idea in ideas[:max(0, DIRECTIONS - len(hypotheses))]))


def brief(review: StagnationReview | None) -> str:
    """Return the review for an agent's prompt, as Markdown, or ""."""
    if review is None:
        return ""
    return "\n".join([
        f"## Stagnation: {review.depth}", "",
        f"The last {review.rounds_without_gain} rounds kept nothing. {review.demands}", "",
        *_listed("New directions:", [idea for idea in review.ideas if not idea.is_repeat]),
        *_listed("Directions that were followed before; follow them differently:",
                 [idea for idea in review.ideas if idea.is_repeat])])


def _listed(heading: str, ideas: Sequence[PlannedIdea]) -> list[str]:
    return [heading, *(f"- {idea.text}" for idea in ideas[:5]), ""] if ideas else []


def new_directions(bottlenecks: Sequence[TunableBottleneck], tried: TriedDirections,
                   depth: Depth) -> list[SearchDirection]:
    """Return the directions whose knobs no search has moved together on this best.

    Bottlenecks take turns. At depth `instructions`, bottlenecks that a compiler named come first;
    at `state of the art`, all knobs of a bottleneck move at once before single ones do. Directions
    that lost on an earlier best come last.
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
    return sorted(directions, key=lambda direction: frozenset(direction.knobs) in tried.lost)


def _directions(tunable: TunableBottleneck, depth: Depth) -> Iterator[SearchDirection]:
    single = [(name,) for name in tunable.knobs]
    pairs = [pair for pair in pairwise(tunable.knobs) if len(tunable.knobs) > 2]
    every = [tuple(tunable.knobs)] if len(tunable.knobs) > 1 else []
    order = [*every, *pairs, *single] if depth == "state of the art" else [*single, *pairs, *every]
    for knobs in order:
        yield SearchDirection(tunable=tunable, knobs=knobs)
