"""Functions of a C source as entries that can be dispatched."""

from __future__ import annotations

import re

import msgspec

from engine.split.languages import c_source
from engine.split.languages.c_source import Item

_WHOLE = re.compile(r"(?:(?:const|volatile|register|unsigned|signed|int|long|short|char|size_t|"
                    r"ssize_t|ptrdiff_t|u?int(?:8|16|32|64)_t|u?intptr_t)\s+)+(\w+)\s*", re.ASCII)


class EntryFunction(msgspec.Struct, frozen=True, kw_only=True):
    """An exported function, the names of its parameters, and those that take whole numbers."""

    name: str
    item: Item
    parameters: tuple[str, ...]
    numbers: tuple[str, ...]


def entry_of(item: Item) -> EntryFunction | None:
    """Return a function as one that can be called with its own parameters, None if it cannot."""
    parts = [re.sub(r"/\*.*?\*/|//[^\n]*", " ", part, flags=re.DOTALL)
             for part in _parts(item.params)]
    named = [re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*\Z", part) for part in parts]
    if not parts or parts == ["void"] or any(found is None for found in named) \
            or any("(" in part or "..." in part for part in parts):
        return None
    numbers = [found[1] for part in parts if (found := _WHOLE.fullmatch(part.strip()))]
    return EntryFunction(name=item.function, item=item, numbers=tuple(numbers),
                 parameters=tuple(found[1] for found in named if found is not None))


def _parts(params: str) -> list[str]:
    parts, depth = [""], 0
    for token in c_source.tokens(params):
        depth += token.text in "([{"
        depth -= token.text in ")]}"
        if token.text == "," and not depth:
            parts.append("")
        else:
            parts[-1] += token.text
    return [part.strip() for part in parts if part.strip()]
