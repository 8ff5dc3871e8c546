"""Which items of a source depend on which, by the names that they define and use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.split.languages.syntax import Item


def dependents(items: Sequence[Item], names: Iterable[str]) -> list[Item]:
    """Return the items that define or use some of the names, directly or through other items."""
    known, chosen = set(names), set[int]()
    while more := [place for place, item in enumerate(items)
                   if place not in chosen and (item.uses | item.defines) & known]:
        chosen.update(more)
        known.update(*(items[place].defines for place in more))
    return [items[place] for place in sorted(chosen)]


def prerequisites(items: Sequence[Item], function: str) -> list[Item]:
    """Return all items that a function needs, itself included, in the source's order."""
    known, chosen = {function}, set[int]()
    while more := [place for place, item in enumerate(items)
                   if place not in chosen and item.defines & known]:
        chosen.update(more)
        known.update(*(items[place].uses for place in more))
    return [items[place] for place in sorted(chosen)]
