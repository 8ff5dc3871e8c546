"""The dispatch that kopt writes into a C source: which config class takes which kernel.

It is text that people read and that is read again when a source is split once more; in between
anybody may have changed it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator

import msgspec

from engine.split.languages import conditions
from engine.split.languages.conditions import Condition, Point
from harness.errors import Refused

_BLOCK = re.compile(
    r"/\* kopt split: (?P<entry>\w+) (?P<table>(?:(?!\*/).)*)\*/\n(?P<code>.*?)"
    r"/\* kopt split: end \*/\n?", re.DOTALL)
_ROW = re.compile(r"^   (?P<condition>[^:]+): (?P<kernel>\w+)(?P<rest>.*)$", re.MULTILINE)
_OTHERWISE = "otherwise"


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """One variant: where it is taken, by the entry's parameters, and what is told of it."""

    condition: Condition
    kernel: str
    told: str


class DispatchBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The dispatcher of one entry point, and where in the source without it it stands."""

    entry: str
    default: str
    branches: tuple[Branch, ...]
    at: int

    def kernel_for(self, point: Point) -> str:
        """Return the kernel that a row takes, its values by parameter."""
        for branch in self.branches:
            if branch.condition.holds(point):
                return branch.kernel
        return self.default


def read(source: str) -> tuple[str, tuple[DispatchBlock, ...]]:
    """Return the source without its dispatchers, and these. Raises Refused for what is not as kopt
    has written it.
    """
    parts, blocks, at, length = [], [], 0, 0
    for found in _BLOCK.finditer(source):
        parts.append(source[at:found.start()])
        length += found.start() - at
        blocks.append(_block(found, length))
        at = found.end()
    return "".join([*parts, source[at:]]), tuple(blocks)


def write(block: DispatchBlock, header: str, names: tuple[str, ...], *, returns: bool) -> str:
    """Return a dispatcher: `header` is the entry's signature, `names` its parameters."""
    lines = ["/* " + "\n".join(table(block)) + " */", f"{header} {{"]
    word = "return " if returns else ""
    for place, one in enumerate(block.branches):
        lines += [f"    {'else ' if place else ''}if ({one.condition})",
                  _call(f"{word}{one.kernel}", names)]
    lines += ["    else", _call(f"{word}{block.default}", names), "}", "/* kopt split: end */"]
    return "\n".join(lines) + "\n"


def table(block: DispatchBlock) -> list[str]:
    """Return the lines that say which kernel is taken where."""
    return [f"kopt split: {block.entry} takes the first of these kernels whose condition holds",
            *(f"   {one.condition}: {one.kernel} {one.told}".rstrip() for one in block.branches),
            f"   {_OTHERWISE}: {block.default}, the kernel that is not specialised"]


def _call(start: str, names: tuple[str, ...]) -> str:
    """Return a call as a statement, in lines that are not too long."""
    begin = f"        {start}("
    rest = textwrap.wrap(f"{', '.join(names)});", 98 - len(begin), break_long_words=False)
    return begin + f"\n{' ' * len(begin)}".join(rest)


def _block(found: re.Match[str], at: int) -> DispatchBlock:
    code = re.sub(r"\s+", " ", found["code"])
    return checked(found["entry"], found["table"], at, lambda kernel, condition: (
        f"if ({condition}) " in code and f"{kernel}(" in code if condition is not None else
        f"else {kernel}(" in code or f"else return {kernel}(" in code))


def checked(entry: str, table: str, at: int,
            goes: Callable[[str, Condition | None], bool]) -> DispatchBlock:
    """Return the block that a table tells; `goes` says whether the code goes to a kernel there.

    Raises Refused where table and code differ.
    """
    try:
        rows = list(_rows(table))
        condition, default, _ = rows.pop()
        if condition != _OTHERWISE or not rows:
            raise ValueError("the table does not end with what is taken otherwise")
        block = DispatchBlock(entry=entry, default=default, at=at, branches=tuple(
            Branch(condition=conditions.parse(text), kernel=kernel, told=told)
            for text, kernel, told in rows))
        for one in block.branches:
            if not goes(one.kernel, one.condition):
                raise ValueError(f"the code does not go to {one.kernel} where the table says it")
        if not goes(default, None):
            raise ValueError(f"the code does not go to {default} where the table says it")
    except (ValueError, IndexError) as error:
        raise Refused(f"the dispatch of {entry} was changed since kopt wrote it: {error}",
                      fix="make its table and its code say the same, or write the next variant "
                          "by hand") from None
    return block


def _rows(table: str) -> Iterator[tuple[str, str, str]]:
    for row in _ROW.finditer(table):
        yield row["condition"], row["kernel"], row["rest"].strip()
