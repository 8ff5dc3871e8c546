"""The dispatchers that kopt writes into a source: which config class takes which kernel.

People read and edit them, and the next split of the same source parses them again.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator

import msgspec

from engine.split.languages import conditions
from engine.split.languages.conditions import Condition, Point
from harness.errors import Refused

_ROW = re.compile(r"^   (?P<condition>[^:]+): (?P<kernel>\w+)(?P<rest>.*)$", re.MULTILINE)
_OTHERWISE = "otherwise"


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

    def kernel_for(self, point: Point) -> str:
        """Return the kernel that runs for a row, whose values are given by parameter."""
        for branch in self.branches:
            if branch.condition.holds(point):
                return branch.kernel
        return self.default


def read(source: str, pattern: re.Pattern[str],
         read_block: Callable[[re.Match[str], int], DispatchBlock],
         ) -> tuple[str, tuple[DispatchBlock, ...]]:
    """Return the source without its dispatchers, and the dispatchers.

    Raises Refused where one was edited so that its table and its code differ.
    """
    parts, blocks, at, length = [], [], 0, 0
    for match in pattern.finditer(source):
        parts.append(source[at:match.start()])
        length += match.start() - at
        blocks.append(read_block(match, length))
        at = match.end()
    return "".join([*parts, source[at:]]), tuple(blocks)


def table(block: DispatchBlock) -> list[str]:
    """Return the lines of a dispatcher's comment, which say which kernel runs where."""
    return [f"kopt split: {block.entry} takes the first of these kernels whose condition holds",
            *(f"   {branch.condition}: {branch.kernel} {branch.note}".rstrip()
              for branch in block.branches),
            f"   {_OTHERWISE}: {block.default}, the kernel that is not specialised"]


def wrapped_call(start: str, arguments: tuple[str, ...]) -> str:
    """Return a call as an indented statement, in lines of at most 98 characters."""
    begin = f"        {start}("
    rest = textwrap.wrap(f"{', '.join(arguments)});", 98 - len(begin), break_long_words=False)
    return begin + f"\n{' ' * len(begin)}".join(rest)


def checked(entry: str, table: str, at: int,
            calls: Callable[[str, Condition | None], bool]) -> DispatchBlock:
    """Return the dispatcher that a table describes.

    `calls` tells whether the code calls a kernel under a condition, None meaning otherwise. Raises
    Refused where table and code differ.
    """
    try:
        rows = list(_rows(table))
        condition, default, _ = rows.pop()
        if condition != _OTHERWISE or not rows:
            raise ValueError(f"the table does not end with an {_OTHERWISE!r} line")
        block = DispatchBlock(entry=entry, default=default, at=at, branches=tuple(
            Branch(condition=conditions.parse(text), kernel=kernel, note=note)
            for text, kernel, note in rows))
        for kernel, where in (*((branch.kernel, branch.condition) for branch in block.branches),
                              (default, None)):
            if not calls(kernel, where):
                raise ValueError(f"the code does not call {kernel} where the table says so")
    except (ValueError, IndexError) as error:
        raise Refused(f"the dispatch of {entry} was changed since kopt wrote it: {error}",
                      fix="make its table and its code agree, or write the next variant by hand"
                      ) from None
    return block


def _rows(table: str) -> Iterator[tuple[str, str, str]]:
    for row in _ROW.finditer(table):
        yield row["condition"], row["kernel"], row["rest"].strip()
