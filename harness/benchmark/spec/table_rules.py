"""How a benchmark's rows are read: which pass their check, and which config class each is in.

A check's rule is `== 0`, `<= 1e-3`, `PASS`, or `PASS|OK`. An entry of `configs` is a column or a
column cut at numbers, `context <= 1024`; `*` alone puts all rows into one class.
"""

from __future__ import annotations

import bisect
import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.benchmark.spec.command_target import CheckColumn, CommandTarget
from harness.call_trace.weights import number

PASS_WORDS = ("pass", "passed", "ok", "true", "yes", "success", "correct")
"""The cells that pass where a check names only its column."""
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
_RULE = re.compile(r"\s*(==|!=|<=|>=|<|>|=)\s*(.*?)\s*", re.DOTALL)
_COLUMN_AND_RULE = re.compile(r"\s*([^=!<>]+?)\s*((?:==|!=|<=|>=|<|>|=).*)", re.DOTALL)
ALL = "*"
"""The entry without a column: all rows are one class."""
_CUT = re.compile(r"\s*(.+?)\s*<=\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True, kw_only=True)
class CheckRule:
    """A parsed rule; `text` words it for messages."""

    text: str
    sign: str
    words: tuple[str, ...] = ()
    number: float | None = None

    def passes(self, cell: str) -> bool:
        """Return whether a cell passes; an empty cell and NaN never do."""
        value = number(cell)
        if not cell.strip() or (value is not None and math.isnan(value)):
            return False
        if self.sign in COMPARISONS:
            assert self.number is not None
            return value is not None and math.isfinite(value) and \
                COMPARISONS[self.sign](value, self.number)
        if self.number is not None and value is not None:
            is_equal = value == self.number
        else:
            is_equal = cell.strip().casefold() in self.words
        return is_equal is (self.sign == "==")


def parse(text: str) -> CheckRule:
    """Parse a rule. Raises ValueError, worded to follow the rule in a message."""
    if not text.strip():
        return CheckRule(text=f"one of {', '.join(PASS_WORDS)}", sign="==", words=PASS_WORDS)
    match = _RULE.fullmatch(text)
    sign, operand = ("==", text.strip()) if match is None else (
        "==" if match[1] == "=" else match[1], match[2].strip("'\" "))
    if not operand:
        raise ValueError("has no value to compare with")
    value = number(operand)
    if value is not None and math.isnan(value):
        raise ValueError("compares with NaN")
    if sign in COMPARISONS:
        if value is None:
            raise ValueError("needs a number")
        return CheckRule(text=f"{sign} {operand}", sign=sign, number=value)
    words = tuple(word.strip().casefold() for word in operand.split("|") if word.strip())
    return CheckRule(text=f"{sign} {operand}", sign=sign, words=words, number=value)


def check_in(text: str) -> CheckColumn:
    """Return the check that one line states: `err == 0`, or a column's name alone."""
    match = _COLUMN_AND_RULE.fullmatch(text)
    if match is None:
        return CheckColumn(column=text.strip())
    return CheckColumn(column=match[1], rule=match[2].strip())


@dataclass(frozen=True, kw_only=True)
class ClassColumn:
    """One column of a class's condition; without cuts each value is a class."""

    column: str
    cuts: tuple[float, ...] = ()

    def condition(self, cell: str) -> str:
        """Return the condition that a cell shares with the others of its class."""
        value = number(cell) if self.cuts else None
        if value is None or value != value:
            return f"{self.column}={cell}"
        at = bisect.bisect_left(self.cuts, value)
        if at == len(self.cuts):
            return f"{self.column}>{self.cuts[-1]:.15g}"
        below = f"{self.cuts[at - 1]:.15g}<" if at else ""
        return f"{below}{self.column}<={self.cuts[at]:.15g}"


def class_columns(configs: Sequence[str]) -> tuple[ClassColumn, ...]:
    """Parse the entries; a column also named without a cut is grouped by its values."""
    cuts: dict[str, list[float]] = {}
    whole: set[str] = set()
    for entry in configs:
        match = _CUT.fullmatch(entry)
        value = number(match[2]) if match else None
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
    """Return row numbers by class, whose name states its condition; `names` are a key's columns."""
    parts = class_columns(configs)
    places = [names.index(part.column) for part in parts]
    classes: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        conditions = [part.condition(key[place]) for part, place in zip(parts, places, strict=True)]
        classes.setdefault(" ".join(conditions) or "all", []).append(row)
    return classes
