"""The condition that tells some rows of a table from others: equality or threshold, few terms."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Literal

import msgspec

Sign = Literal["==", "<=", ">="]
Point = Mapping[str, int]
"""The whole numbers of one row, by column."""
MOST_TERMS = 2
_HOLDS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "<=": operator.le, ">=": operator.ge}


class Term(msgspec.Struct, frozen=True):
    """One comparison of a column with a number."""

    column: str
    sign: Sign
    bound: int

    def holds(self, point: Point) -> bool:
        return _HOLDS[self.sign](point[self.column], self.bound)

    def __str__(self) -> str:
        return f"{self.column} {self.sign} {self.bound}"


class Condition(msgspec.Struct, frozen=True):
    """Terms that all must hold."""

    terms: tuple[Term, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(term.column for term in self.terms))

    def holds(self, point: Point) -> bool:
        return all(term.holds(point) for term in self.terms)

    def by(self, name_of: Mapping[str, str]) -> Condition:
        """Return it with other names for its columns."""
        return Condition(tuple(Term(name_of[term.column], term.sign, term.bound)
                               for term in self.terms))

    def __str__(self) -> str:
        return " && ".join(map(str, self.terms))


def find(inside: Sequence[Point], outside: Sequence[Point],
         columns: Sequence[str]) -> Condition | None:
    """Return the simplest condition that holds for all points inside and for none outside.

    A threshold comes before an equality, since what is dispatched takes values that no benchmark
    has; its bound is the value inside that is nearest to those outside, so that what nobody has
    measured between them stays outside. Among thresholds the one with the widest gap wins, then
    the column that is named first. None where no such condition separates them.
    """
    if not inside or not outside:
        return None
    terms = list(_terms(inside, columns))
    for count in range(1, MOST_TERMS + 1):
        found = [Condition(chosen) for chosen in combinations(terms, count)
                 if not any(all(term.holds(point) for term in chosen) for point in outside)]
        if found:
            return min(found, key=lambda one: _badness(one, outside))
    return None


def _terms(inside: Sequence[Point], columns: Sequence[str]) -> Iterator[Term]:
    """Yield every comparison that holds for all points inside."""
    for column in columns:
        values = [point[column] for point in inside]
        yield Term(column, ">=", min(values))
        yield Term(column, "<=", max(values))
        if min(values) == max(values):
            yield Term(column, "==", values[0])


def _badness(condition: Condition, outside: Sequence[Point]) -> tuple[int, float]:
    """Return how far a condition is from one anybody would write: equalities, then narrow gaps."""
    equalities = sum(term.sign == "==" for term in condition.terms)
    return equalities, -math.fsum(_gap(term, outside) for term in condition.terms)


def _gap(term: Term, outside: Sequence[Point]) -> float:
    """Return how far the nearest value that a term keeps out is from its bound, as a ratio."""
    away = [point[term.column] for point in outside if not term.holds(point)]
    if not away:
        return 0.0
    nearest = min(abs(value - term.bound) for value in away)
    return nearest / max(1, abs(term.bound), max(abs(value) for value in away))


def parse(text: str) -> Condition:
    """Read a condition as it is written. Raises ValueError for anything else."""
    terms = []
    for part in text.split(" && "):
        words = part.split()
        if len(words) != 3 or words[1] not in _HOLDS:
            raise ValueError(f"{text!r} is no condition")
        sign: Sign = "==" if words[1] == "==" else "<=" if words[1] == "<=" else ">="
        terms.append(Term(words[0], sign, int(words[2])))
    return Condition(tuple(terms))
