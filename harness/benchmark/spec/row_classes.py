"""Group the rows of a benchmark's table into config classes by the target's `configs`.

An entry is a column, whose values are kept apart, or a column cut at a number: `context <= 1024`.
Several cuts of one column make ranges; `*` alone puts all rows into one class.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.benchmark.spec import check_rule
from harness.benchmark.spec.command_target import CommandTarget

ALL = "*"
"""The entry without a column: all rows are one class."""
_CUT = re.compile(r"\s*(.+?)\s*<=\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True, kw_only=True)
class ClassColumn:
    """One column of a class's condition; without cuts each of its values is apart."""

    column: str
    cuts: tuple[float, ...] = ()

    def condition(self, cell: str) -> str:
        """Return the condition that a cell shares with the others of its class."""
        value = check_rule.number(cell) if self.cuts else None
        if value is None or value != value:
            return f"{self.column}={cell}"
        at = bisect.bisect_left(self.cuts, value)
        if at == len(self.cuts):
            return f"{self.column}>{self.cuts[-1]:.15g}"
        below = f"{self.cuts[at - 1]:.15g}<" if at else ""
        return f"{below}{self.column}<={self.cuts[at]:.15g}"


def class_columns(configs: Sequence[str]) -> tuple[ClassColumn, ...]:
    """Parse the entries; a column that is also named whole is grouped by its values."""
    cuts: dict[str, list[float]] = {}
    whole: set[str] = set()
    for entry in configs:
        match = _CUT.fullmatch(entry)
        value = check_rule.number(match[2]) if match else None
        if entry == ALL:
            continue
        if match is None or value is None:
            whole.add(entry)
            cuts.setdefault(entry, [])
        else:
            cuts.setdefault(match[1], []).append(value)
    return tuple(ClassColumn(column=name, cuts=() if name in whole else tuple(sorted(set(values))))
                 for name, values in cuts.items())


def columns(configs: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that the entries name."""
    return tuple(part.column for part in class_columns(configs))


def required_columns(target: CommandTarget) -> tuple[str, ...]:
    """Return the columns that the benchmark's file needs for its classes and weights."""
    of_weights = target.weights.columns if target.weights else ()
    return tuple(dict.fromkeys((*columns(target.configs), *of_weights)))


def group_rows(configs: Sequence[str], names: Sequence[str],
               keys: Sequence[Sequence[str]]) -> dict[str, list[int]]:
    """Return the row numbers of each class by its name, in the order of their first rows.

    `names` are the columns of a key. A class's name states its whole condition, so that it is the
    same for a few rows as for all.
    """
    parts = class_columns(configs)
    places = [names.index(part.column) for part in parts]
    classes: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        conditions = [part.condition(key[place]) for part, place in zip(parts, places, strict=True)]
        classes.setdefault(" ".join(conditions) or "all", []).append(row)
    return classes
