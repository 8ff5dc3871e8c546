"""Which of a table's columns can be dispatched on: those that an entry is called with."""

from __future__ import annotations

import re
from collections.abc import Iterable

from engine.split.languages.c_entries import EntryFunction
from engine.split.languages.call_graph import dependent
from engine.split.languages.language import Language

_ALIAS = re.compile(r"(?://|/\*|#)\s*kopt:\s*column\s+(\S+)\s+is\s+(\S+)")


def entries(language: Language, source: str) -> tuple[EntryFunction, ...]:
    """Return the functions of a source that can be dispatched, without dispatchers and variants."""
    text, blocks = language.read(source)
    variants = {one.kernel for block in blocks for one in block.branches}
    found = (language.entry_of(item) for item in language.items(text)
             if item.function and not item.static)
    return tuple(one for one in found if one is not None and one.name not in variants)


def columns(language: Language, source: str, names: Iterable[str],
            tuned: Iterable[str]) -> dict[str, str]:
    """Return which columns can be dispatched on, and what an entry calls them.

    An argument is called as its column is, or `kopt: column NAME is ARGUMENT` says so. It is one of
    every entry that depends on the `tuned` names, or of the one with most.
    """
    text, _ = language.read(source)
    moved = dependent(language.items(text), tuned)
    concerned = [entry for entry in entries(language, source) if entry.item in moved]
    if not concerned:
        return {}
    most = max(concerned, key=lambda entry: len(entry.numbers))
    alias = {found[1]: found[2] for found in _ALIAS.finditer(source)}
    folded = {_folded(name): name for name in most.numbers}
    wanted = {name: alias.get(name) or folded.get(_folded(name), "") for name in names}
    wanted = {name: word for name, word in wanted.items() if word and language.takes(most, [word])}
    shared = {name: word for name, word in wanted.items()
              if all(language.takes(entry, [word]) for entry in concerned)}
    return shared or wanted


def _folded(name: str) -> str:
    return name.casefold().replace("_", "")
