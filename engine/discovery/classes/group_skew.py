"""Find the rows of uneven groups, such as a matmul per expert where one expert has most tokens.

A gain that holds only for equal groups does not help training or serving.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from engine.discovery.project import columns
from engine.discovery.project.columns import WORDS, TableColumn

_GROUPED = WORDS["groups"] | WORDS["skewed"]
_LIST = re.compile(r"[\[(]?\s*\d+(?:\s*[,;/| ]\s*\d+)+\s*[\])]?")


@dataclass(frozen=True, kw_only=True)
class Skew:
    """The column that says how even the groups are, and the skew of each row.

    The skew is lowest for rows with equal groups. `entry` is the entry of `configs` that puts even
    and uneven rows into different classes, "" if there is none.
    """

    column: str
    of_rows: tuple[float, ...]
    entry: str = ""

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows with the most skew; none if all rows have even groups."""
        most = max(self.of_rows)
        if most <= min(self.of_rows) and most <= 1:
            return ()
        return tuple(row for row, skew in enumerate(self.of_rows) if skew == most)


def is_grouped(table: Sequence[TableColumn]) -> bool:
    """Return whether a column describes groups."""
    return any(_names_groups(column) for column in table)


def find_skew(table: Sequence[TableColumn]) -> Skew | None:
    """Return the skew of a table's rows, None if no column shows it."""
    group_columns = [column for column in table if _names_groups(column)]
    for column in group_columns:
        sizes = [_sizes(cell) for cell in column.cells]
        if all(sizes):
            return Skew(column=column.name, of_rows=tuple(
                max(groups) * len(groups) / (sum(groups) or 1.0) for groups in sizes))
    for column in group_columns:
        if not columns.name_words(column.name) & WORDS["skewed"]:
            continue
        in_class = column.role in ("path", "size")
        if column.numbers:
            return Skew(column=column.name,
                        of_rows=tuple(1.0 + abs(number) for number in column.numbers),
                        entry=f"{column.name} <= {min(column.numbers):.15g}" if in_class else "")
        return Skew(column=column.name, entry=column.name if in_class else "", of_rows=tuple(
            1.0 if columns.name_words(cell) & WORDS["even"] or not cell else 2.0
            for cell in column.cells))
    return None


def _names_groups(column: TableColumn) -> bool:
    return bool(columns.name_words(column.name) & _GROUPED)


def _sizes(cell: str) -> list[float]:
    """Return a cell such as `[128, 0, 4096]` as numbers; empty if it is not a list."""
    if not _LIST.fullmatch(cell):
        return []
    return [float(part) for part in re.findall(r"\d+", cell)]
