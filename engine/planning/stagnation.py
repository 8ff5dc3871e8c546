"""What rounds without a gain demand: no end, but another direction, deeper each time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import msgspec

from engine.history.history import Regression
from engine.planning.bottlenecks import TunableBottleneck
from harness.formats.text import plain

Depth = Literal["review", "instructions", "state of the art"]
DIRECTIONS = 3
"""New directions that a review names at least."""
AGAIN = "again: "
"""Before a direction that was followed on this best already."""

_DEPTHS: dict[int, Depth] = {2: "review", 3: "instructions", 4: "state of the art"}
_WIDTH: dict[Depth, int] = {"review": 2, "instructions": 2, "state of the art": 4}
_DEMANDS: dict[Depth, str] = {
    "review": "Go over the last versions and the attempts that failed, look at the bottlenecks "
              "afresh, and leave the old direction: no small change of what was rolled back.",
    "instructions": "Go down to the instructions: read the machine code of the hot loops, its "
                    "waits and stalls, its registers, the width of its vectors.",
    "state of the art": "Compare with the best known implementations of this op on this hardware: "
                        "what do they do otherwise? Start again from their form if it is better.",
}
_IDEAS: dict[Depth, tuple[str, ...]] = {
    "review": (
        "another blocking of the loops, so that what is read twice stays close",
        "another layout or order of access, so that memory moves in long runs",
        "loads ahead of the arithmetic that needs them",
        "less work: fuse what follows, skip what is not needed",
        "another split of the work over threads, blocks or processing units"),
    "instructions": (
        "wider loads, stores and vector or matrix instructions",
        "fewer registers, so that more is in flight, or more work for each thread",
        "independent instructions between a load and its wait, and around barriers",
        "fewer address computations, conversions and branches in the innermost loop",
        "several sums at once, as many as the unit's latency asks for"),
    "state of the art": (
        "the form that the vendor's own library has of this op",
        "the fastest published kernel of this op, and the schedule it uses",
        "another algorithm that moves or computes less",
        "a kernel of its own for each config class, behind a dispatch",
        "the whole op rewritten from nothing for this card's newest instructions"),
}


class StagnationReview(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the round after so many rollbacks in a row.

    `width` is how much wider its searches look; `ideas` are directions in words, for agents and
    people, three at least, that no slot has followed on this best, or that say AGAIN.
    """

    depth: Depth
    rollbacks: int
    demands: str
    width: int
    ideas: tuple[str, ...]


def places(leads: Sequence[TunableBottleneck]) -> tuple[str, ...]:
    """Return what ideas may be aimed at: the best's bottlenecks, with their config classes."""
    return tuple(dict.fromkeys(map(place, leads)))


def place(lead: TunableBottleneck) -> str:
    found = lead.bottleneck
    return f"against {found.limiter}" + (f" in {found.config_class}" if found.config_class else "")


def aimed(idea: str, leads: Sequence[TunableBottleneck],
          lead: TunableBottleneck | None) -> tuple[str, TunableBottleneck | None]:
    """Return a direction's words and its bottleneck: the one that it names, or else `lead`."""
    for one in leads:
        if idea.endswith(f", {place(one)}"):
            return idea, one
    return idea if lead is None else f"{idea}, {place(lead)}", lead


def review(rollbacks: int, tried: Collection[str] = (),
           places: Sequence[str] = ()) -> StagnationReview | None:
    """Return what so many rollbacks in a row demand, None below two; `tried` are hypotheses.

    Where too few ideas are new, they are aimed at other `places`, and then followed once more.
    """
    if rollbacks < min(_DEPTHS):
        return None
    depth = _DEPTHS[min(rollbacks, max(_DEPTHS))]
    depths = list(_DEPTHS.values())
    known = [idea for one in depths[:depths.index(depth) + 1][::-1] for idea in _IDEAS[one]]
    new = _untried(known, tried)
    more = _untried([f"{idea}, {place}" for place in places for idea in known if idea not in new],
                    tried)
    again = [f"{AGAIN}{idea}" for idea in known if idea not in new]
    return StagnationReview(
        depth=depth, rollbacks=rollbacks, demands=_DEMANDS[depth], width=_WIDTH[depth],
        ideas=(*new, *[*more, *again][:max(0, DIRECTIONS - len(new))]))


def _untried(ideas: Iterable[str], tried: Collection[str]) -> list[str]:
    return [idea for idea in ideas if not any(idea in text for text in tried)]


def named(found: Sequence[str], ideas: Sequence[str]) -> tuple[str, ...]:
    """Return the directions that a review names: those to be worked on, and ideas up to three."""
    return (*found, *ideas[:max(0, DIRECTIONS - len(found))])


def brief(review: StagnationReview | None, recent: Sequence[Regression]) -> str:
    """Return what an agent is told besides its hypothesis, as Markdown; "" if there is nothing."""
    parts = []
    if review is not None:
        parts += [f"## Stagnation: {review.depth}", "",
                  f"The last {review.rollbacks} rounds were rolled back. {review.demands}", "",
                  *_listed("Directions that nobody has followed yet:",
                           [idea for idea in review.ideas if not idea.startswith(AGAIN)]),
                  *_listed("Directions that were followed before, to be followed otherwise:",
                           [idea for idea in review.ideas if idea.startswith(AGAIN)])]
    if recent:
        parts += ["## What made it slower lately", "",
                  "Do not repeat these; the words are their authors':",
                  *(f"- {told(one)}" for one in recent), ""]
    return "\n".join(parts)


def _listed(head: str, ideas: Sequence[str]) -> list[str]:
    return [head, *(f"- {idea}" for idea in ideas[:5]), ""] if ideas else []


def told(one: Regression) -> str:
    """Return a regression in one line."""
    where = f" ({'; '.join(one.points)})" if one.points else ""
    text = plain(f"round {one.round}: {one.hypothesis}: {one.change:+.1%} time{where}", 400)
    return " ".join(text.split())
