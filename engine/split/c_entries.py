"""The exported functions of a C source, and which of their parameters are a table's columns."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from engine.split import c_dispatch, c_items
from engine.split.c_items import Item
from engine.split.graph import dependent

_WHOLE = re.compile(r"(?:(?:const|volatile|register|unsigned|signed|int|long|short|char|size_t|"
                    r"ssize_t|ptrdiff_t|u?int(?:8|16|32|64)_t|u?intptr_t)\s+)+(\w+)\s*", re.ASCII)
_ALIAS = re.compile(r"(?://|/\*)\s*kopt:\s*column\s+(\S+)\s+is\s+(\w+)")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An exported function, the names of its parameters, and those that take whole numbers."""

    name: str
    item: Item
    parameters: tuple[str, ...]
    numbers: tuple[str, ...]


def entries(source: str) -> tuple[Entry, ...]:
    """Return the exported functions of a source that can be dispatched, without dispatchers."""
    text, blocks = c_dispatch.read(source)
    variants = {one.kernel for block in blocks for one in block.branches}
    found = (entry_of(item) for item in c_items.items(text) if item.function and not item.static)
    return tuple(one for one in found if one is not None and one.name not in variants)


def columns(source: str, names: Iterable[str], tuned: Iterable[str]) -> dict[str, str]:
    """Return which of a table's columns are parameters that can be dispatched on, and which.

    A parameter is called as its column is, or `kopt: column NAME is PARAMETER` says so. It is one
    of every exported function that depends on the `tuned` knobs, or of the one with most.
    """
    text, _ = c_dispatch.read(source)
    moved = dependent(c_items.items(text), tuned)
    concerned = [entry for entry in entries(source) if entry.item in moved]
    most = max((entry.numbers for entry in concerned), key=len, default=())
    shared = [name for name in most
              if all(name in entry.numbers for entry in concerned)] or list(most)
    alias = {found[1]: found[2] for found in _ALIAS.finditer(source)}
    folded = {_folded(name): name for name in shared}
    wanted = {name: alias.get(name) or folded.get(_folded(name), "") for name in names}
    return {name: parameter for name, parameter in wanted.items() if parameter in shared}


def entry_of(item: Item) -> Entry | None:
    """Return a function as one that can be called with its own parameters, None if it cannot."""
    parts = [re.sub(r"/\*.*?\*/|//[^\n]*", " ", part, flags=re.DOTALL)
             for part in _parts(item.params)]
    named = [re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*\Z", part) for part in parts]
    if not parts or parts == ["void"] or any(found is None for found in named) \
            or any("(" in part or "..." in part for part in parts):
        return None
    numbers = [found[1] for part in parts if (found := _WHOLE.fullmatch(part.strip()))]
    return Entry(name=item.function, item=item, numbers=tuple(numbers),
                 parameters=tuple(found[1] for found in named if found is not None))


def _parts(params: str) -> list[str]:
    parts, depth = [""], 0
    for token in c_items.tokens(params):
        depth += token.text in "([{"
        depth -= token.text in ")]}"
        if token.text == "," and not depth:
            parts.append("")
        else:
            parts[-1] += token.text
    return [part.strip() for part in parts if part.strip()]


def _folded(name: str) -> str:
    return name.casefold().replace("_", "")
