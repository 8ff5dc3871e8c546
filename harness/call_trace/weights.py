"""How often a program calls each shape, as a trace counts it: weights of the score's rows.

A row of the score weighs what its shape is called. That is the weight as it stands, without its
time: in a geometric mean a gain counts by calls, in a total of times by calls x time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.errors import InputError
from harness.formats.yaml_decode import suggest
from harness.target import Target

NAMED = 3
"""Shapes that a message names at most."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One line of the file."""

    cells: tuple[str, ...]
    calls: float


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The lines of a file; `columns` are those of the cells, `sha256` is the file's."""

    columns: tuple[str, ...]
    shapes: tuple[Shape, ...]
    sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """What each of some rows weighs; `unnamed` are those that no shape is, `absent` the shapes that
    no row is.
    """

    of: tuple[float, ...]
    unnamed: tuple[int, ...] = ()
    absent: tuple[Shape, ...] = ()

    @property
    def names_none(self) -> bool:
        """Tell whether the weights say nothing of these rows."""
        return len(self.unnamed) == len(self.of)

    def notes(self, weights: Weights, names: Sequence[str]) -> tuple[str, ...]:
        """Say what the weights and the rows, which have names, do not have in common."""
        told = []
        if self.unnamed and not self.names_none:
            least = self.of[self.unnamed[0]]
            told.append(f"the weights do not name {len(self.unnamed)} of {len(self.of)} rows, "
                        f"which weigh as much as the least of the others ({least:g} calls): "
                        f"{_some([names[place] for place in self.unnamed])}")
        if self.absent and not self.names_none:
            share = math.fsum(one.calls for one in self.absent) / math.fsum(
                one.calls for one in weights.shapes)
            told.append(f"{len(self.absent)} of {len(weights.shapes)} shapes of the weights, "
                        f"{share:.1%} of the calls, not measured: " + _some(
                            [label(weights.columns, one.cells) for one in self.absent]))
        return tuple(told)


def spread(weights: Weights | None, columns: Sequence[str],
           keys: Sequence[Sequence[str]]) -> Spread:
    """Return what rows weigh, told by the cells of their columns; 1 each where no weights are.

    Rows that a shape does not tell apart share its calls.
    """
    if weights is None:
        return Spread(of=(1.0,) * len(keys))
    places = [columns.index(name) for name in weights.columns]
    rows: dict[tuple[str, ...], list[int]] = {}
    for number, key in enumerate(keys):
        rows.setdefault(folded([key[place] for place in places]), []).append(number)
    found: dict[int, float] = {}
    absent = []
    for one in weights.shapes:
        inside = rows.get(folded(one.cells), [])
        found |= dict.fromkeys(inside, one.calls / max(len(inside), 1))
        absent += [] if inside else [one]
    least = min(found.values(), default=1.0)
    return Spread(of=tuple(found.get(row, least) for row in range(len(keys))),
                  unnamed=tuple(row for row in range(len(keys)) if row not in found),
                  absent=tuple(absent))


def weighted(target: Target, weights: Weights) -> tuple[Target, tuple[str, ...]]:
    """Return a kernel's target with its classes weighted by their dimensions, and what to know.

    Raises InputError where the weights are not of its shapes.
    """
    dimensions = list(dict.fromkeys(name for one in target.classes for name in one.shape))
    for column in weights.columns:
        if column not in dimensions:
            raise InputError(f"{column!r} is a dimension of no class", where="target.weights",
                             fix=suggest(column, dimensions))
    found = spread(weights, dimensions, [[str(one.shape.get(name, "")) for name in dimensions]
                                         for one in target.classes])
    if found.names_none:
        raise unnamed(weights, "class", f"{target.classes[0].name} is " + label(
            tuple(target.classes[0].shape), tuple(map(str, target.classes[0].shape.values()))))
    classes = tuple(replace(one, weight=calls)
                    for one, calls in zip(target.classes, found.of, strict=True))
    return replace(target, classes=classes), found.notes(weights, [c.name for c in classes])


def unnamed(weights: Weights, what: str, such: str) -> InputError:
    """Return the refusal of weights that name none of what is measured, such as what."""
    shape = label(weights.columns, weights.shapes[0].cells)
    return InputError(f"the weights name no {what}: theirs are such as {shape}, and {such}",
                      where="target.weights", fix="trace the shapes that are measured")


def label(columns: Sequence[str], cells: Sequence[str]) -> str:
    """Return `m=128 n=64`."""
    return " ".join(f"{name}={cell}" for name, cell in zip(columns, cells, strict=True))


def folded(cells: Sequence[str]) -> tuple[str, ...]:
    """Return cells so that two are equal if they mean the same number: 64 and 64.0."""
    return tuple(map(_folded, cells))


def _folded(cell: str) -> str:
    value = number(cell)
    if value is None or not math.isfinite(value):
        return cell.strip()
    if not value.is_integer():
        return repr(value)
    try:
        return str(int(cell))  # beyond what a float holds
    except ValueError:
        return str(int(value))


def number(cell: str) -> float | None:
    """Return a cell as a number; None where it is none."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
