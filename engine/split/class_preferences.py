"""Which config classes want other knobs than the rest, by how configurations did in each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from engine.split.languages import conditions
from engine.split.languages.conditions import Condition, Point
from harness.errors import Refused
from harness.formats.text import plain
from harness.search.space.space import Config
from harness.search.trials.trials import ConfigRows, Contender, LoopResult, Showing

MOST_GROUPS = 3
"""Specialised variants that one split adds."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Classes that take the same specialised variant, and where."""

    config: Config
    classes: tuple[str, ...]
    points: tuple[Point, ...]
    gain: float
    """The least log ratio that one of its classes gains beside the common best."""
    condition: Condition


def points_of(columns: Sequence[str], rows: ConfigRows, usable: Iterable[str]) -> tuple[Point, ...]:
    """Return a class's rows by the columns that can be dispatched on."""
    places = {column: columns.index(column) for column in usable}
    return tuple({column: whole(cells[place]) or 0 for column, place in places.items()}
                 for cells in rows.cells)


def whole(cell: str) -> int | None:
    """Return a cell as the whole number it is, None for anything else."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return int(value) if math.isfinite(value) and value == int(value) and abs(value) < 2**53 \
        else None


def numeric(result: LoopResult) -> tuple[str, ...]:
    """Return the columns that hold a whole number in every row."""
    cells = [row for one in result.classes for row in one.cells]
    return tuple(column for place, column in enumerate(result.columns)
                 if all(whole(row[place]) is not None for row in cells))


def groups(result: LoopResult, usable: Sequence[str], margin: float, *,
           first: Sequence[str] = ()) -> tuple[Group, ...]:
    """Return the classes that want a variant of their own, none where the common best will do.

    Raises Refused where no condition on the usable columns tells them from the others.

    A class wants what beats both the common best and the kernel as it is by more than the margin,
    for sure; who is served as well by the same variant, as far as can be told, goes along. A
    condition is on the columns named `first`, those that classes are made of, where one will do.
    """
    least = math.log1p(margin)
    wishes = _wishes(result, least)
    points = {one.name: points_of(result.columns, one, usable) for one in result.classes}
    found: list[Group] = []
    left = dict(wishes)
    while left and len(found) < MOST_GROUPS:
        contender = max({id(one): one for one, _ in left.values()}.values(),
                        key=lambda one: _total(one, left, least))
        served = [name for name in left if _serves(contender, name, left[name][1], least)]
        group = None
        for columns in ([column for column in usable if column in first], list(usable)):
            group = group or _group(contender, served, wishes, result, points, columns, least)
        if group is not None:
            found.append(group)
        served = list(group.classes) if group is not None else served
        left = {name: wish for name, wish in left.items() if name not in served}
    if wishes and not found:
        raise Refused(
            f"{', '.join(plain(name, 60) for name in list(wishes)[:3])} would be faster with knobs "
            "of their own, and no condition on a parameter tells them from the others",
            fix="give the function the column that does as a whole number, and call it the same")
    return tuple(found)


def _wishes(result: LoopResult, least: float) -> dict[str, tuple[Contender, Showing]]:
    """Return by class what it wants and what that gains, where it is clear."""
    default = _default(result)
    wishes = {}
    for rows in result.classes:
        config, showing = result.best_in(rows.name)
        before = 0.0 if default is None else _gain(default, rows.name)
        if showing.sure > 0 and showing.gain > least and showing.gain - before > least:
            contender = next(one for one in result.contenders if one.config == config)
            wishes[rows.name] = contender, showing
    return wishes


def _default(result: LoopResult) -> Contender | None:
    """Return the kernel as it is, None where that is the common best."""
    first = result.trials[0].config if result.trials else result.best
    return next((one for one in result.contenders if one.config == first), None)


def _gain(contender: Contender, name: str) -> float:
    showing = contender.showing(name)
    return -math.inf if showing is None else showing.gain


def _total(contender: Contender, left: Mapping[str, tuple[Contender, Showing]],
           least: float) -> float:
    return math.fsum(max(0.0, _gain(contender, name)) for name in left
                     if _gain(contender, name) > least)


def _serves(contender: Contender, name: str, wish: Showing, least: float) -> bool:
    """Tell whether a contender is as good for a class as what it wants, but for noise."""
    own = contender.showing(name)
    if own is None or own.sure <= 0 or own.gain <= least:
        return False
    noise = 2 * math.hypot(own.stderr or 0.0, wish.stderr or 0.0)
    return own.gain >= wish.gain - max(least, noise)


def _group(contender: Contender, served: list[str], wishes: Mapping[str, object],
           result: LoopResult, points: Mapping[str, tuple[Point, ...]], columns: Sequence[str],
           least: float) -> Group | None:
    """Return as many of the classes as a condition tells from those that would lose."""
    default = _default(result)

    def loses(name: str) -> bool:
        gain = _gain(contender, name)
        before = 0.0 if default is None else _gain(default, name)
        return name in wishes or gain < -least or gain <= before + least

    others = [name for name in points if name not in served]
    outside = [point for name in [one for one in others if loses(one)] or others
               for point in points[name]]
    chosen = sorted(served, key=lambda name: -_gain(contender, name))
    while chosen:
        inside = [point for name in chosen for point in points[name]]
        condition = conditions.find(inside, outside, columns)
        if condition is not None:
            taken = tuple(name for name in points
                          if all(condition.holds(point) for point in points[name]))
            return Group(config=contender.config, classes=taken, condition=condition,
                         points=tuple(inside), gain=min(_gain(contender, one) for one in chosen))
        chosen.pop()
    return None
