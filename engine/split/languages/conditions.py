"""Finds the simplest condition (equalities, thresholds) that tells some rows from others."""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Literal

import msgspec

Sign = Literal["==", "<=", ">="]
Point = Mapping[str, int]
"""The whole numbers of one row, by column."""
MOST_COMPARISONS = 2
_OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "<=": operator.le, ">=": operator.ge}
FAR = 2**31 - 1
"""Stands for a range's missing end."""
_VALUE = re.compile(r"(?P<column>[^\s=<>]+)=(?P<value>-?\d+)(?:\.0*)?")
_RANGE = re.compile(r"(?:(?P<low>-?\d+)(?:\.0*)?<)?(?P<column>[^\s=<>]+)<=(?P<high>-?\d+)(?:\.0*)?")
_ABOVE = re.compile(r"(?P<column>[^\s=<>]+)>(?P<low>-?\d+)(?:\.0*)?")


class Comparison(msgspec.Struct, frozen=True):
    """A comparison of one column with a number."""

    column: str
    sign: Sign
    bound: int

    def holds(self, point: Point) -> bool:
        return _OPERATORS[self.sign](point[self.column], self.bound)

    def __str__(self) -> str:
        return f"{self.column} {self.sign} {self.bound}"


class Condition(msgspec.Struct, frozen=True):
    """Comparisons that must all hold."""

    comparisons: tuple[Comparison, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(comparison.column for comparison in self.comparisons))

    def holds(self, point: Point) -> bool:
        return all(comparison.holds(point) for comparison in self.comparisons)

    def with_columns(self, name_of: Mapping[str, str]) -> Condition:
        """Return the condition with its columns renamed."""
        return Condition(tuple(Comparison(name_of[part.column], part.sign, part.bound)
                               for part in self.comparisons))

    def __str__(self) -> str:
        return " && ".join(map(str, self.comparisons))


def find(inside: Sequence[Point], outside: Sequence[Point],
         columns: Sequence[str]) -> Condition | None:
    """Return the simplest condition that holds for all points inside and for none outside, or None.

    Thresholds, the widest gap first, are preferred to equalities, since programs pass values that
    no benchmark has. A bound is the inside value nearest to those outside: what was never measured
    stays outside.
    """
    if not inside or not outside:
        return None
    comparisons = list(_comparisons(inside, columns))
    for count in range(1, MOST_COMPARISONS + 1):
        separating = [Condition(chosen) for chosen in combinations(comparisons, count)
                      if not any(Condition(chosen).holds(point) for point in outside)]
        if separating:
            return min(separating, key=lambda condition: _cost(condition, outside))
    return None


def parse(text: str) -> Condition:
    """Parse a condition as `str` writes it. Raises ValueError for anything else."""
    comparisons = []
    for part in text.split(" && "):
        tokens = part.split()
        if len(tokens) != 3 or tokens[1] not in _OPERATORS:
            raise ValueError(f"{text!r} is not a condition")
        sign: Sign = "==" if tokens[1] == "==" else "<=" if tokens[1] == "<=" else ">="
        comparisons.append(Comparison(tokens[0], sign, int(tokens[2])))
    return Condition(tuple(comparisons))


def _comparisons(inside: Sequence[Point], columns: Sequence[str]) -> Iterator[Comparison]:
    """Yield every comparison that holds for all points inside."""
    for column in columns:
        values = [point[column] for point in inside]
        yield Comparison(column, ">=", min(values))
        yield Comparison(column, "<=", max(values))
        if min(values) == max(values):
            yield Comparison(column, "==", values[0])


def _cost(condition: Condition, outside: Sequence[Point]) -> tuple[int, float]:
    """Rank a condition: the fewest equalities first, then the widest gaps."""
    equalities = sum(comparison.sign == "==" for comparison in condition.comparisons)
    return equalities, -math.fsum(_gap(comparison, outside)
                                  for comparison in condition.comparisons)


def _gap(comparison: Comparison, outside: Sequence[Point]) -> float:
    """Return the relative distance from the bound to the nearest value that is kept out."""
    values = [point[comparison.column] for point in outside if not comparison.holds(point)]
    if not values:
        return 0.0
    nearest = min(abs(value - comparison.bound) for value in values)
    return nearest / max(1, abs(comparison.bound), max(abs(value) for value in values))


def corners(name: str) -> tuple[Point, ...]:
    """Return the corners of the ranges in a class's name, `heads=3 64<context<=1024`."""
    ranges: dict[str, tuple[int, ...]] = {}
    for word in name.split():
        if match := _VALUE.fullmatch(word):
            ranges[match["column"]] = (int(match["value"]),)
        elif match := _RANGE.fullmatch(word):
            low = -FAR if match["low"] is None else int(match["low"]) + 1
            ranges[match["column"]] = (low, int(match["high"]))
        elif match := _ABOVE.fullmatch(word):
            ranges[match["column"]] = (int(match["low"]) + 1, FAR)
    return tuple(dict(zip(ranges, values, strict=True))
                 for values in itertools.product(*ranges.values())) if ranges else ()


def shared(points: Sequence[Point]) -> tuple[str, ...]:
    """Return the columns that all points have."""
    return tuple(column for column in (points[0] if points else ())
                 if all(column in point for point in points))
