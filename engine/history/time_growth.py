"""How a class's time depends on its columns, from a benchmark's own times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from engine.knowledge import strategy_table
from harness.call_trace.weights import number
from harness.formats.quantities import latency, ratio
from harness.verdict import Row

FIXED, LINEAR = 0.25, 1.2
"""Exponents of the time in a column: below FIXED most time is fixed, above LINEAR it grows faster
than the column."""
Shape = Mapping[str, str]


class TimeGrowth(NamedTuple):
    """What limits a class, judged by its time against the nearest class's, and what to do."""

    limiter: str
    evidence: str
    advice: str


class Step(NamedTuple):
    """A class that differs from another in the value of one column."""

    column: str
    value: float
    other_value: float
    row: Row

    @property
    def size(self) -> float:
        return abs(math.log(self.value / self.other_value))


def unknown() -> TimeGrowth:
    """Return the result for a class that has no class to compare with."""
    return TimeGrowth("unexplained time",
                      "no other class differs from it in one column alone, which would explain it",
                      strategy_table.advice("unexplained time"))


def of_class(rows: Sequence[Row], row: Row) -> TimeGrowth:
    """Return how a class's time changes along the one column in which another class differs.

    If several classes differ so, the nearest ones with smaller values are compared, and the column
    with the largest exponent is returned.
    """
    steps = [step for other in rows if other.latency_us for step in _steps(row, other)]
    if not steps or not row.latency_us:
        return unknown()
    smaller = [step for step in steps if step.other_value < step.value] or steps
    nearest = [step for step in smaller if step.size == min(
        other.size for other in smaller if other.column == step.column)]
    exponent, step = max(((_exponent(row, step), step) for step in nearest),
                         key=lambda growth: growth[0])
    name, other_us = step.column, step.row.latency_us or 1.0
    evidence = f"{latency(row.latency_us)} at {name}={step.value:g}, {latency(other_us)} " \
               f"at {name}={step.other_value:g}: {ratio(row.latency_us / other_us)} the " \
               f"time for {ratio(step.value / step.other_value)} the {name}"
    if exponent < FIXED:
        limiter = "fixed cost"
    else:
        limiter = f"cost per {name}" if exponent <= LINEAR else f"growth beyond {name}"
    return TimeGrowth(limiter, evidence, strategy_table.advice(limiter, name))


def _steps(row: Row, other: Row) -> Iterator[Step]:
    """Yield a step if the rows of `other` differ from a class's rows in one column alone."""
    here, there = _shapes(row), _shapes(other)
    for name in here[0] if here and there else ():
        cells = [{shape.get(name, "") for shape in shapes} for shapes in (here, there)]
        if cells[0] != cells[1] and len(cells[0]) == len(cells[1]) == 1 \
                and _without(here, name) == _without(there, name):
            value, other_value = (number(cell) or 0.0 for [cell] in cells)
            if 0 < value < math.inf and 0 < other_value < math.inf:
                yield Step(name, value, other_value, other)


def _shapes(row: Row) -> list[Shape]:
    """Return the columns of each row of a benchmark in a class; none if that is not recorded."""
    return [dict(cell.partition("=")[::2] for cell in shape.split()) for shape in row.shapes]


def _without(shapes: Sequence[Shape], name: str) -> list[list[tuple[str, str]]]:
    return sorted(sorted(item for item in shape.items() if item[0] != name) for shape in shapes)


def _exponent(row: Row, step: Step) -> float:
    """Return the exponent with which a class's time grows with the column of a step."""
    times = (row.latency_us or 1.0) / (step.row.latency_us or 1.0)
    return math.log(times) / math.log(step.value / step.other_value)
