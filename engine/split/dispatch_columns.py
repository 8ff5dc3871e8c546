"""Which columns of a benchmark's table a dispatcher can test: those that an entry takes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from engine.split.languages.call_graph import dependents
from engine.split.languages.language import Language
from engine.split.languages.syntax import EntryFunction

_ALIAS = re.compile(r"(?://|/\*|#)\s*kopt:\s*column\s+(\S+)\s+is\s+(\S+)")


def entries(language: Language, source: str) -> dict[str, EntryFunction]:
    """Return the functions that a dispatcher can call, by name, without variants."""
    text, blocks = language.read(source)
    variants = {branch.kernel for block in blocks for branch in block.branches}
    return {item.function: item.entry for item in language.items(text)
            if item.entry is not None and not item.static and item.function not in variants}


def columns(language: Language, source: str, names: Iterable[str],
            tuned: Iterable[str]) -> dict[str, str]:
    """Return the columns that a dispatcher can test, with the argument that holds each.

    An argument has the name of its column, or a comment `kopt: column NAME is ARGUMENT` maps it. It
    belongs to every entry that depends on the `tuned` names, else to the entry with most arguments.
    """
    text, _ = language.read(source)
    affected = {item.function for item in dependents(language.items(text), tuned)}
    candidates = [entry for name, entry in entries(language, source).items() if name in affected]
    if not candidates:
        return {}
    largest = max(candidates, key=lambda entry: len(entry.columns))
    aliases = {match[1]: match[2] for match in _ALIAS.finditer(source)}
    folded = {_folded(name): name for name in largest.columns}
    argument_of = {name: aliases.get(name) or folded.get(_folded(name), "") for name in names}
    argument_of = {name: argument for name, argument in argument_of.items()
                   if argument and language.takes(largest, [argument])}
    shared = {name: argument for name, argument in argument_of.items()
              if all(language.takes(entry, [argument]) for entry in candidates)}
    return shared or argument_of


def _folded(name: str) -> str:
    return name.casefold().replace("_", "")
