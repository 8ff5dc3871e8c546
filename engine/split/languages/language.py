"""What a split has to know of a language: its things at file scope, names, entries, dispatchers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol

from engine.split.languages import c_dispatch, c_entries, c_source
from engine.split.languages.c_dispatch import DispatchBlock
from engine.split.languages.c_entries import EntryFunction
from engine.split.languages.c_source import Item

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


class Language(Protocol):
    """A language whose sources can be split."""

    knobs: str
    """Its name where knobs are looked for."""
    gap: str
    """What stands before a function."""

    def items(self, source: str) -> tuple[Item, ...]: ...

    def renamed(self, text: str, name_of: Callable[[str], str]) -> str: ...

    def names(self, source: str) -> frozenset[str]: ...

    def entry_of(self, item: Item) -> EntryFunction | None: ...

    def takes(self, entry: EntryFunction, columns: Iterable[str]) -> bool: ...

    def read(self, source: str) -> tuple[str, tuple[DispatchBlock, ...]]: ...

    def dispatcher(self, block: DispatchBlock, kernel: Item) -> str: ...

    def comment(self, text: str) -> str: ...

    def is_header(self, item: Item) -> bool: ...


class C:
    """Plain C; see `c_items` for how much of it is understood."""

    knobs = "c"
    gap = "\n"

    def items(self, source: str) -> tuple[Item, ...]:
        return c_source.items(source)

    def renamed(self, text: str, name_of: Callable[[str], str]) -> str:
        return c_source.renamed(text, name_of)

    def names(self, source: str) -> frozenset[str]:
        return c_source.names(source)

    def entry_of(self, item: Item) -> EntryFunction | None:
        return c_entries.entry_of(item)

    def takes(self, entry: EntryFunction, columns: Iterable[str]) -> bool:
        return set(columns) <= set(entry.numbers)

    def read(self, source: str) -> tuple[str, tuple[DispatchBlock, ...]]:
        return c_dispatch.read(source)

    def dispatcher(self, block: DispatchBlock, kernel: Item) -> str:
        entry = self.entry_of(kernel)
        assert entry is not None  # it was dispatched, or is about to be
        head = _COMMENT.sub(" ", kernel.head)
        header = " ".join(f"{head}{block.entry}".split())
        returns = "void" not in head.split() or "*" in head
        return c_dispatch.write(block, f"{header}({kernel.params})", entry.parameters,
                                returns=returns)

    def comment(self, text: str) -> str:
        return f"/* {text} */\n"

    def is_header(self, item: Item) -> bool:
        return item.text.lstrip().startswith("#") and \
            item.text.lstrip("# \t").startswith("include")
