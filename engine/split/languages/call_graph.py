"""What in a C source is made of what: by the names that things at file scope define and use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.split.languages.c_source import Item


def dependent(found: Sequence[Item], tuned: Iterable[str]) -> list[Item]:
    """Return what is made of some knobs, itself or by something that is."""
    known, moved = set(tuned), set[int]()
    while True:
        more = [place for place, item in enumerate(found) if place not in moved
                and (item.uses | item.defines) & known]
        if not more:
            return [item for place, item in enumerate(found) if place in moved]
        for place in more:
            moved.add(place)
            known |= found[place].defines


def reached(found: Sequence[Item], function: str) -> list[Item]:
    """Return what a function is made of, itself last, in the source's order."""
    known, taken = {function}, set[int]()
    while True:
        more = [place for place, item in enumerate(found)
                if place not in taken and item.defines & known]
        if not more:
            return [item for place, item in enumerate(found) if place in taken]
        for place in more:
            taken.add(place)
            known |= found[place].uses
