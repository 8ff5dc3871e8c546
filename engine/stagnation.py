"""What rounds without a gain demand: no end, but another direction, deeper each time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from engine.history import Regression
from harness.text import plain

Depth = Literal["review", "instructions", "state of the art"]
DIRECTIONS = 3
"""New directions that a review names at least."""

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


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the round after so many rollbacks in a row.

    `width` is how much wider its searches look; `ideas` are directions in words, for agents and
    people, that no slot has followed on this best.
    """

    depth: Depth
    rollbacks: int
    demands: str
    width: int
    ideas: tuple[str, ...]


def review(rollbacks: int, tried: Collection[str] = ()) -> Review | None:
    """Return what so many rollbacks in a row demand, None below two; `tried` are hypotheses."""
    if rollbacks < min(_DEPTHS):
        return None
    depth = _DEPTHS[min(rollbacks, max(_DEPTHS))]
    depths = list(_DEPTHS.values())
    known = [idea for one in depths[:depths.index(depth) + 1][::-1] for idea in _IDEAS[one]]
    new = [idea for idea in known if not any(idea in text for text in tried)]
    return Review(depth=depth, rollbacks=rollbacks, demands=_DEMANDS[depth], width=_WIDTH[depth],
                  ideas=tuple(new or known))


def named(found: Sequence[str], ideas: Sequence[str]) -> tuple[str, ...]:
    """Return the directions that a review names: those to be worked on, and ideas up to three."""
    return (*found, *ideas[:max(0, DIRECTIONS - len(found))])


def brief(review: Review | None, recent: Sequence[Regression]) -> str:
    """Return what an agent is told besides its hypothesis, as Markdown; "" if there is nothing."""
    parts = []
    if review is not None:
        parts += [f"## Stagnation: {review.depth}", "",
                  f"The last {review.rollbacks} rounds were rolled back. {review.demands}", "",
                  "Directions that nobody has followed yet:",
                  *(f"- {idea}" for idea in review.ideas[:5]), ""]
    if recent:
        parts += ["## What made it slower lately", "",
                  "Do not repeat these; the words are their authors':",
                  *(f"- {told(one)}" for one in recent), ""]
    return "\n".join(parts)


def told(one: Regression) -> str:
    """Return a regression in one line."""
    where = f" ({'; '.join(one.points)})" if one.points else ""
    text = plain(f"round {one.round}: {one.hypothesis}: {one.change:+.1%} time{where}", 400)
    return " ".join(text.split())
