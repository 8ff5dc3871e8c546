"""Which rows of a benchmark's table are one config class: those that share what `configs` names.

An entry is a column, whose values are told apart, or a column cut at a number: `context <= 1024`.
Several cuts of one column make ranges; `*` alone makes all rows one class.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.benchmark.spec import check_rule
from harness.benchmark.spec.command_target import CommandTarget

ALL = "*"
"""The entry that names no column: all rows are alike."""
_CUT = re.compile(r"\s*(.+?)\s*<=\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True, kw_only=True)
class ClassColumn:
    """One column of a class's condition; without cuts its values are told apart."""

    column: str
    cuts: tuple[float, ...] = ()

    def word(self, cell: str) -> str:
        """Say of a cell what it has in common with others of its class."""
        value = check_rule.number(cell) if self.cuts else None
        if value is None or value != value:
            return f"{self.column}={cell}"
        at = bisect.bisect_left(self.cuts, value)
        if at == len(self.cuts):
            return f"{self.column}>{self.cuts[-1]:.15g}"
        below = f"{self.cuts[at - 1]:.15g}<" if at else ""
        return f"{below}{self.column}<={self.cuts[at]:.15g}"


def class_columns(configs: Sequence[str]) -> tuple[ClassColumn, ...]:
    """Read the entries; a column that is also named whole is told apart by its values."""
    cuts: dict[str, list[float]] = {}
    whole: set[str] = set()
    for entry in configs:
        written = _CUT.fullmatch(entry)
        value = check_rule.number(written[2]) if written else None
        if entry == ALL:
            continue
        if written is None or value is None:
            whole.add(entry)
            cuts.setdefault(entry, [])
        else:
            cuts.setdefault(written[1], []).append(value)
    return tuple(ClassColumn(column=name, cuts=() if name in whole else tuple(sorted(set(found))))
                 for name, found in cuts.items())


def columns(configs: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that the entries name."""
    return tuple(part.column for part in class_columns(configs))


def required_columns(target: CommandTarget) -> tuple[str, ...]:
    """Return the columns that a benchmark's file must have to tell its rows apart as asked."""
    of_weights = target.weights.columns if target.weights else ()
    return tuple(dict.fromkeys((*columns(target.configs), *of_weights)))


def group_rows(configs: Sequence[str], names: Sequence[str],
            keys: Sequence[Sequence[str]]) -> dict[str, list[int]]:
    """Return the classes by name, in the order in which rows first show them, with their rows.

    `names` are the columns of a key. The name of a class says all of its condition, so that it is
    the same for few rows as for all.
    """
    found = class_columns(configs)
    places = [names.index(part.column) for part in found]
    classes: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        words = [part.word(key[place]) for part, place in zip(found, places, strict=True)]
        classes.setdefault(" ".join(words) or "all", []).append(row)
    return classes
