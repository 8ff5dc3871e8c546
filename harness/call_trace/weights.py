"""How often a program calls each shape: the weights of the rows in the score.

A file of weights is CSV with a column for each dimension of the shapes, and `calls`. A row's weight
is the number of calls of its shape, whatever its time. In a geometric mean a gain counts by calls,
in a total of times by calls x time.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.errors import InputError
from harness.formats.quantities import listed
from harness.formats.text import plain, suggest
from harness.tasks.target import Target

NAMED = 3
"""The most shapes that a message names."""
CALLS = "calls"
LIMITS = {"bytes": 4 << 20, "rows": 4096, "columns": 256}
LEAST_CALLS, MOST_CALLS = 1e-18, 1e18
"""Bounds within which calls can be divided among rows and summed as floats."""
FIX = "the file needs a column for each dimension and the column calls"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One line of the file."""

    cells: tuple[str, ...]
    calls: float


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The rows of a weights file; `columns` name the cells, `sha256` is the file's hash."""

    columns: tuple[str, ...]
    shapes: tuple[Shape, ...]
    sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The weight of each row; `unnamed` are rows without a shape, `absent` shapes without a row."""

    of: tuple[float, ...]
    unnamed: tuple[int, ...] = ()
    absent: tuple[Shape, ...] = ()

    @property
    def names_none(self) -> bool:
        """Return whether the weights name none of the rows."""
        return len(self.unnamed) == len(self.of)

    def notes(self, weights: Weights, names: Sequence[str]) -> tuple[str, ...]:
        """Return notes about rows that have no weight and shapes that have no row."""
        notes = []
        if self.unnamed and not self.names_none:
            least = self.of[self.unnamed[0]]
            notes.append(f"the weights do not name {len(self.unnamed)} of {len(self.of)} rows, "
                        f"which get the smallest weight of the others ({least:g} calls): "
                        f"{listed([names[place] for place in self.unnamed], NAMED)}")
        if self.absent and not self.names_none:
            share = math.fsum(shape.calls for shape in self.absent) / math.fsum(
                shape.calls for shape in weights.shapes)
            notes.append(f"{len(self.absent)} of {len(weights.shapes)} shapes of the weights, "
                        f"{share:.1%} of the calls, not measured: " + listed(
                            [label(weights.columns, shape.cells) for shape in self.absent], NAMED))
        return tuple(notes)


def parse(data: bytes, where: str) -> Weights:
    """Read the bytes of a file, which `where` names. Raises InputError with the line."""
    if len(data) > LIMITS["bytes"]:
        raise InputError(f"is larger than {LIMITS['bytes'] >> 20} MiB", where=where, fix=FIX)
    try:
        lines = list(_lines(data.decode("utf-8-sig")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"is not CSV: {error}", where=where, fix=FIX) from None
    if not lines:
        raise InputError("is empty", where=where, fix=FIX)
    header = lines[0][1]
    _check_header(header, where)
    kept = [place for place, name in enumerate(header) if name and name != CALLS]
    if len(lines) == 1:
        raise InputError("has a header and no rows", where=where)
    if len(lines) - 1 > LIMITS["rows"]:
        raise InputError(f"has more than {LIMITS['rows']} rows", where=where)
    shapes: list[Shape] = []
    seen: dict[tuple[str, ...], int] = {}
    for line, cells in lines[1:]:
        at = f"{where}:{line}"
        if len(cells) != len(header):
            raise InputError(f"has {len(cells)} cells, but there are {len(header)} columns",
                             where=at)
        shape = Shape(cells=tuple(cells[place] for place in kept),
                      calls=_calls(cells[header.index(CALLS)], at))
        if (first := seen.setdefault(folded(shape.cells), line)) != line:
            repeated = label([header[place] for place in kept], shape.cells)
            raise InputError(f"{repeated} is also in line {first}", where=at,
                             fix="add up the calls of each shape")
        shapes.append(shape)
    return Weights(columns=tuple(header[place] for place in kept), shapes=tuple(shapes),
                   sha256=hashlib.sha256(data).hexdigest())


def _lines(text: str) -> list[tuple[int, list[str]]]:
    """Return the non-empty lines with their numbers; cells are stripped."""
    reader = csv.reader(io.StringIO(text), skipinitialspace=True, strict=True)
    return [(reader.line_num, [plain(cell.strip(), 80) for cell in line]) for line in reader
            if any(cell.strip() for cell in line)]


def _check_header(header: Sequence[str], where: str) -> None:
    named = [name for name in header if name]
    if CALLS not in named:
        raise InputError(f"has no column {CALLS!r}", where=where,
                         fix=f"it has {', '.join(named[:12])}")
    if len(named) > LIMITS["columns"]:
        raise InputError(f"has more than {LIMITS['columns']} columns", where=where)
    for place, name in enumerate(named):
        if name in named[:place]:
            raise InputError(f"has the column {name!r} twice", where=where)
    if len(named) == 1:
        raise InputError("has no column for a dimension", where=where, fix=FIX)


def _calls(cell: str, at: str) -> float:
    value = number(cell)
    if value is None or not 0 < value < math.inf:
        value_text = repr(cell) if cell else "empty"
        raise InputError(f"{CALLS} is {value_text}, not a number above zero", where=at,
                         fix="leave out shapes that are never called")
    if not LEAST_CALLS <= value <= MOST_CALLS:
        raise InputError(f"{CALLS} is {cell!r}, not between {LEAST_CALLS:g} and {MOST_CALLS:g}",
                         where=at, fix="count in other units")
    return value


def spread(weights: Weights | None, columns: Sequence[str],
           keys: Sequence[Sequence[str]]) -> Spread:
    """Return the weights of rows by their cells: rows of one shape share its calls.

    Without weights each row weighs 1.
    """
    if weights is None:
        return Spread(of=(1.0,) * len(keys))
    places = [columns.index(name) for name in weights.columns]
    rows: dict[tuple[str, ...], list[int]] = {}
    for number, key in enumerate(keys):
        rows.setdefault(folded([key[place] for place in places]), []).append(number)
    shares: dict[int, float] = {}
    absent = []
    for shape in weights.shapes:
        inside = rows.get(folded(shape.cells), [])
        shares |= dict.fromkeys(inside, shape.calls / max(len(inside), 1))
        absent += [] if inside else [shape]
    least = min(shares.values(), default=1.0)
    return Spread(of=tuple(shares.get(row, least) for row in range(len(keys))),
                  unnamed=tuple(row for row in range(len(keys)) if row not in shares),
                  absent=tuple(absent))


def weighted(target: Target, weights: Weights) -> tuple[Target, tuple[str, ...]]:
    """Return a target with weighted classes, and notes. Raises InputError if they do not fit."""
    dimensions = list(dict.fromkeys(name for config in target.classes for name in config.shape))
    for column in weights.columns:
        if column not in dimensions:
            raise InputError(f"no class has the dimension {column!r}", where="target.weights",
                             fix=suggest(column, dimensions))
    allocation = spread(weights, dimensions, [
        [str(config.shape.get(name, "")) for name in dimensions] for config in target.classes])
    if allocation.names_none:
        raise unnamed(weights, "class", f"{target.classes[0].name} is " + label(
            tuple(target.classes[0].shape), tuple(map(str, target.classes[0].shape.values()))))
    classes = tuple(replace(config, weight=calls)
                    for config, calls in zip(target.classes, allocation.of, strict=True))
    return replace(target, classes=classes), allocation.notes(weights, [c.name for c in classes])


def unnamed(weights: Weights, what: str, example: str) -> InputError:
    """Return the error for weights that name nothing measured; `example` is a measured one."""
    shape = label(weights.columns, weights.shapes[0].cells)
    return InputError(f"the weights match no {what}: they have shapes like {shape}, but {example}",
                      where="target.weights", fix="trace the shapes that are measured")


def label(columns: Sequence[str], cells: Sequence[str]) -> str:
    """Return columns with their cells, as in `m=128 n=64`."""
    return " ".join(f"{name}={cell}" for name, cell in zip(columns, cells, strict=True))


def folded(cells: Sequence[str]) -> tuple[str, ...]:
    """Return cells in a form in which equal numbers are equal text: 64 and 64.0."""
    return tuple(map(_folded, cells))


def _folded(cell: str) -> str:
    value = number(cell)
    if value is None or not math.isfinite(value):
        return cell.strip()
    if not value.is_integer():
        return repr(value)
    try:
        return str(int(cell))  # exact beyond 2**53
    except ValueError:
        return str(int(value))


def number(cell: str) -> float | None:
    """Return a cell's number, which may be NaN or infinite; None if the cell holds a word."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None
