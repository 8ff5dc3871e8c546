"""The places in rows that a kernel visits, and the lines of one visit."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from engine.rewrites.module_graph import Ref
from engine.rewrites.rows.row_index import RowPlace

FULL = RowPlace(name="", column="column", columns="columns", at="at", inside="inside")
PART = RowPlace(name="_part", column="column_part", columns="part", at="at_part",
                inside="inside_part")

FIRST = [
    "program = tl.program_id(0)",
    "if WIDE:",
    "    program = program.to(tl.int64)"]
STEPS = [
    "start = program % tl.cdiv(columns, BLOCK) * BLOCK",
    "program = program // tl.cdiv(columns, BLOCK)"]
"""Where a program computes a part of its rows: from column `start` on."""
HEAD = [
    "row = program * LANES + tl.arange(0, LANES)[:, None]",
    "known = row < row_count",
    "part = columns // 2"]


@dataclass(kw_only=True)
class Pass:
    """The lines of one loop over a row, or of all if the row is in registers."""

    suffix: str
    lines: list[str] = field(default_factory=list)
    values: dict[tuple[Ref, RowPlace], str] = field(default_factory=dict)

    def write(self, *lines: str) -> None:
        """Add the lines that are not there yet."""
        self.lines += [line for line in lines if line not in self.lines]

    def cut(self, place: RowPlace, part: int) -> RowPlace:
        """Return the columns of a half as places in the whole row."""
        name = f"{place.name or '_'}{part}"
        whole = "columns" if place.columns == "part" else f"(2 * {place.columns})"
        column = f"({place.column} + {place.columns})" if part else place.column
        cut = RowPlace(name=name, column=column, columns=whole, at=f"at{name}{self.suffix}",
                       inside=place.inside)
        self.write(f"{cut.at} = row * {whole} + {column}")
        return cut

    def half(self, place: RowPlace, part: int) -> RowPlace:
        """Return the columns of a joined row as places in one of its two halves."""
        name = f"{place.name}_half{part}"
        column = f"({place.column} - part)" if part else place.column
        half = RowPlace(name=name, column=column, columns="part", at=f"at{name}{self.suffix}",
                        inside=f"inside{name}{self.suffix}")
        self.write(f"{half.at} = row * part + {column}",
                   f"{half.inside} = {place.inside} & ({place.column} "
                   f"{'>=' if part else '<'} part)")
        return half


def own_names(line: str, result: str) -> str:
    """Return a line of a form whose intermediate variables belong to one result.

    In Triton a loop must not change the type of a variable from before it.
    """
    return re.sub(r"\bt_(\w+)", rf"t_{result}_\1", line)


def tile(place: RowPlace, columns: str) -> list[str]:
    """Return the lines that name a tile's columns, indices and mask."""
    return [f"{place.column} = {columns}",
            f"{place.at} = row * {place.columns} + {place.column}",
            f"{place.inside} = known & ({place.column} < {place.columns})"]
