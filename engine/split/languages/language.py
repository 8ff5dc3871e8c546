"""A language whose sources can be split, and the dispatchers that kopt writes into them.

People edit a dispatcher, which says which class takes which kernel; the next split parses it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from engine.split.languages import conditions
from engine.split.languages.conditions import Condition, Point
from engine.split.languages.syntax import EntryFunction, Item
from harness.errors import Refused

_ROW = re.compile(r"^   (?P<condition>[^:]+): (?P<kernel>\w+)(?P<rest>.*)$", re.MULTILINE)
OTHERWISE = "otherwise"


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """One variant of a kernel, and the condition on the entry's parameters under which it runs."""

    condition: Condition
    kernel: str
    note: str
    """For people: the variant's knobs and classes."""


class DispatchBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The dispatcher of one entry point; `at` is its place in the source without dispatchers."""

    entry: str
    default: str
    branches: tuple[Branch, ...]
    at: int

    @property
    def kernels(self) -> set[str]:
        return {self.default, *(branch.kernel for branch in self.branches)}

    @property
    def columns(self) -> set[str]:
        """The parameters that it tests."""
        return {column for branch in self.branches for column in branch.condition.columns}

    def branch_for(self, point: Point) -> Branch | None:
        """Return the branch that runs for a row, whose values are given by parameter."""
        return next((branch for branch in self.branches if branch.condition.holds(point)), None)

    def kernel_for(self, point: Point) -> str:
        branch = self.branch_for(point)
        return self.default if branch is None else branch.kernel


class Language(Protocol):
    """A language whose sources can be split."""

    knobs: str
    """The language's name in `harness.search.space.knobs`."""
    gap: str
    """The text between two functions."""
    block: re.Pattern[str]
    """A dispatcher: its `entry`, its `table` and its `code`."""

    def items(self, source: str) -> tuple[Item, ...]:
        """Return the top-level items, in order. Raises InputError at a syntax error."""

    def renamed(self, text: str, name_of: Callable[[str], str]) -> str:
        """Return an item's text with its file-scope names replaced."""

    def names(self, source: str) -> frozenset[str]:
        """Return every name that the source uses."""

    def takes(self, entry: EntryFunction, columns: Iterable[str]) -> bool:
        """Return whether the entry's dispatcher can test all of these columns."""

    def dispatcher(self, block: DispatchBlock, kernel: Item) -> str:
        """Return the code of a dispatcher with the signature of its default kernel."""

    def calls(self, code: str, kernel: str, condition: Condition | None) -> bool:
        """Return whether code calls a kernel under a condition, or for None in its `else`.

        Each run of blanks in the code was replaced by a single one.
        """

    def comment(self, text: str) -> str:
        """Return a comment on lines of its own."""

    def is_header(self, item: Item) -> bool:
        """Return whether an item includes or imports something."""

    def read(self, source: str) -> tuple[str, tuple[DispatchBlock, ...]]:
        """Return the source without its dispatchers, and the dispatchers.

        Raises Refused if the table of one does not agree with its code.
        """
        parts, blocks, at, length = [], [], 0, 0
        for match in self.block.finditer(source):
            parts.append(source[at:match.start()])
            length += match.start() - at
            blocks.append(self._read_block(match, length))
            at = match.end()
        return "".join([*parts, source[at:]]), tuple(blocks)

    def _read_block(self, match: re.Match[str], at: int) -> DispatchBlock:
        code = re.sub(r"\s+", " ", match["code"])
        rows = list(_ROW.finditer(re.sub(r"^#", "", match["table"], flags=re.MULTILINE)))
        try:
            if not rows or rows[-1]["condition"] != OTHERWISE or len(rows) < 2:
                raise ValueError(f"the table does not end with an {OTHERWISE!r} line")
            block = DispatchBlock(
                entry=match["entry"], default=rows[-1]["kernel"], at=at, branches=tuple(
                    Branch(condition=conditions.parse(row["condition"]), kernel=row["kernel"],
                           note=row["rest"].strip()) for row in rows[:-1]))
            for kernel, where in (*((branch.kernel, branch.condition) for branch in block.branches),
                                  (block.default, None)):
                if not self.calls(code, kernel, where):
                    raise ValueError(f"the code does not call {kernel} where the table says so")
        except ValueError as error:
            raise Refused(
                f"the dispatch of {match['entry']} was changed since kopt wrote it: {error}",
                fix="make its table and its code agree, or write the next variant by hand"
            ) from None
        return block


def table(block: DispatchBlock) -> list[str]:
    """Return the lines of a dispatcher's comment, which say which kernel runs where."""
    return [f"kopt split: {block.entry} takes the first of these kernels whose condition holds",
            *(f"   {branch.condition}: {branch.kernel} {branch.note}".rstrip()
              for branch in block.branches),
            f"   {OTHERWISE}: {block.default}, the kernel that is not specialised"]


def wrapped_call(start: str, arguments: tuple[str, ...]) -> str:
    """Return a call as an indented statement, in lines of at most 98 characters."""
    begin = f"        {start}("
    rest = textwrap.wrap(f"{', '.join(arguments)});", 98 - len(begin), break_long_words=False)
    return begin + f"\n{' ' * len(begin)}".join(rest)
