"""How a class's time depends on its columns: what a benchmark says of its cost."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from engine.knowledge import strategy_table
from harness.formats.quantities import latency, ratio
from harness.verdict import Row

FIXED, LINEAR = 0.25, 1.2
"""Exponents of a column below which its time is mostly fixed, and above which it grows faster."""
_COLUMN = re.compile(r"(?<![^\s,;])(\w+)=(-?\d+(?:\.\d+)?)(?![^\s,;])")


class TimeGrowth(NamedTuple):
    """What limits a class, as its time beside the nearest class shows, and what to do about it."""

    limiter: str
    evidence: str
    advice: str


def unknown() -> TimeGrowth:
    """Return what is said of a class that no other one explains."""
    return TimeGrowth("unexplained time", "no other class differs from it in one column alone",
                      strategy_table.advice("unexplained time"))


def of_class(rows: Sequence[Row], row: Row) -> TimeGrowth:
    """Return how a class's time changes along the one column in which another class differs.

    Of several such classes, the nearest with a smaller value in the column whose growth costs most.
    """
    own = _columns(row)
    neighbours: list[tuple[bool, float, str, float, Row]] = []
    for other in rows:
        theirs = _columns(other)
        differing = [name for name in own if theirs.get(name) != own[name]]
        if own.keys() == theirs.keys() and len(differing) == 1 and other.latency_us \
                and _conditions(other) == _conditions(row):
            [name] = differing
            if theirs[name] > 0 < own[name]:
                step = math.log(own[name] / theirs[name])
                neighbours.append((step < 0, abs(step), name, theirs[name], other))
    if not neighbours or not row.latency_us:
        return unknown()
    only_larger = all(one[0] for one in neighbours)
    smaller = [one for one in neighbours if one[0] == only_larger]
    nearest = [one for one in smaller
               if one[1] == min(other[1] for other in smaller if other[2] == one[2])]
    growths = [(_exponent(own[name], value, row, other), name, value, other)
               for _, _, name, value, other in nearest]
    exponent, name, value, other = max(growths, key=lambda growth: growth[0])
    evidence = f"{latency(row.latency_us)} at {name}={own[name]:g}, {latency(other.latency_us)} " \
               f"at {name}={value:g}: {ratio(row.latency_us / (other.latency_us or 1.0))} the " \
               f"time for {ratio(own[name] / value)} the {name}"
    if exponent < FIXED:
        limiter = "fixed cost"
    else:
        limiter = f"cost per {name}" if exponent <= LINEAR else f"growth beyond {name}"
    return TimeGrowth(limiter, evidence, strategy_table.advice(limiter, name))


def _columns(row: Row) -> dict[str, float]:
    """Return the numbers in a class's name: `mtp=8 context=2048`."""
    return {name: float(value) for name, value in _COLUMN.findall(row.config_class)}


def _conditions(row: Row) -> list[str]:
    """Return what else a class's name says: `skew<=0`."""
    return _COLUMN.sub("", row.config_class).split()


def _exponent(own: float, theirs: float, row: Row, other: Row) -> float:
    """Return the power of a column that a class's time follows."""
    times = (row.latency_us or 1.0) / (other.latency_us or 1.0)
    return math.log(times) / math.log(own / theirs)
