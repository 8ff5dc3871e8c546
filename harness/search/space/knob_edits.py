"""A proposed knob: its choices, and the edits of a source that declare it."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from harness.search.space import triton_autotune

SIZES = re.compile(
    r"(?i)^(block|tile|group|split|chunk|unroll|warps|threads|lanes|stages|b[mnkdthv]$)"
    r"|_(block|tile|size|threads|warps|unroll)$")
FIXED = re.compile(r"(?i)warp_?size|batch_?size")  # sizes of the hardware and of the problem
USUAL = {"num_warps": (1, 2, 4, 8, 16), "num_stages": (1, 2, 3, 4, 5)}


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A replacement for some bytes of the source."""

    begin: int
    end: int
    written: str


@dataclass(frozen=True, kw_only=True)
class KnobProposal:
    """A knob that could be declared: the present value, the choices, the edits that declare it."""

    name: str
    line: int
    value: int
    choices: tuple[int, ...]
    why: str
    edits: tuple[Edit, ...] = ()
    is_new: bool = True
    """Whether its name is one that kopt inserts."""
    is_of_launch: bool = False
    """Whether the task's launch uses it; `inlined` then leaves its constant in the source."""

    @property
    def begin(self) -> int:
        return self.edits[0].begin

    def renamed(self, name: str) -> KnobProposal:
        return replace(self, name=name, edits=tuple(replace(
            edit, written=edit.written.replace(self.name, name)) for edit in self.edits))


def is_size(name: str) -> bool:
    return name in USUAL or bool(SIZES.search(name))


def choices_around(name: str, value: int, most: int = 0) -> tuple[int, ...]:
    """Return a quarter to four times a value, above 32 up to `most`, or an option's usual ones."""
    if name in USUAL:
        return tuple(sorted({*USUAL[name], value}))
    choices = {max(1, value // 4), max(1, value // 2), value, 2 * value, 4 * value}
    choices |= {value << step for step in range(3, 8) if value > 32 and value << step <= most}
    return tuple(sorted(choices))


def knob_name(kernel: str, name: str) -> str:
    return "_".join(filter(None, (kernel.strip("_"), name.strip("_")))).upper()


def line_starts(source: str) -> list[int]:
    lengths = (len(line.encode()) for line in triton_autotune.lines_of(source))
    return list(accumulate(lengths, initial=0))


def begin_of(node: ast.expr, starts: Sequence[int]) -> int:
    return starts[node.lineno - 1] + node.col_offset


def end_of(node: ast.expr, starts: Sequence[int]) -> int:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return starts[node.end_lineno - 1] + node.end_col_offset
