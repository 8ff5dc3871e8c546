"""The protocol of a language whose sources can be split."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from engine.split.languages.dispatch import DispatchBlock
from engine.split.languages.syntax import EntryFunction, Item


class Language(Protocol):
    """A language whose sources can be split."""

    knobs: str
    """The language's name in `harness.search.space.knobs`."""
    gap: str
    """The text between two functions."""

    def items(self, source: str) -> tuple[Item, ...]:
        """Return the top-level items, in order. Raises InputError at a syntax error."""

    def renamed(self, text: str, name_of: Callable[[str], str]) -> str:
        """Return an item's text with its file-scope names replaced."""

    def names(self, source: str) -> frozenset[str]:
        """Return every name that the source uses."""

    def takes(self, entry: EntryFunction, columns: Iterable[str]) -> bool:
        """Return whether the entry's dispatcher can test all of these columns."""

    def read(self, source: str) -> tuple[str, tuple[DispatchBlock, ...]]:
        """Return the source without its dispatchers, and the dispatchers."""

    def dispatcher(self, block: DispatchBlock, kernel: Item) -> str:
        """Return the code of a dispatcher with the signature of its default kernel."""

    def comment(self, text: str) -> str:
        """Return a comment on lines of its own."""

    def is_header(self, item: Item) -> bool:
        """Return whether an item includes or imports something."""
