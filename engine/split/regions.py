"""Reads the range of values in the name of a config class: `context=4096 heads=3`, or
`64<context<=1024`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from engine.split.languages.conditions import Point

FAR = 2**31 - 1
"""The open end of a range."""
_VALUE = re.compile(r"(?P<column>[^\s=<>]+)=(?P<value>-?\d+)(?:\.0*)?")
_RANGE = re.compile(r"(?:(?P<low>-?\d+)(?:\.0*)?<)?(?P<column>[^\s=<>]+)<=(?P<high>-?\d+)(?:\.0*)?")
_ABOVE = re.compile(r"(?P<column>[^\s=<>]+)>(?P<low>-?\d+)(?:\.0*)?")


def corners(name: str) -> tuple[Point, ...]:
    """Return every combination of the ends of a class's ranges; ignore columns of text."""
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
