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
"""Exponents of a column below which its time is mostly fixed, and above which it grows faster."""
Shape = Mapping[str, str]


class TimeGrowth(NamedTuple):
    """What limits a class, as its time beside the nearest class shows, and what to do about it."""

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
    """Return the growth of a class that differs from no other in one column alone."""
    return TimeGrowth("unexplained time", "no other class differs from it in one column alone",
                      strategy_table.advice("unexplained time"))


def of_class(rows: Sequence[Row], row: Row) -> TimeGrowth:
    """Return how a class's time changes along the one column in which another class differs.

    Of several such classes, the nearest with a smaller value in the column whose growth costs most.
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
    """Yield the step from another class, if all their rows agree but for one column's value."""
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
    """Return the power of a column that a class's time follows."""
    times = (row.latency_us or 1.0) / (step.row.latency_us or 1.0)
    return math.log(times) / math.log(step.value / step.other_value)
