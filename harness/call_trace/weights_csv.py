"""Reads a file of weights: CSV with a column for each dimension of the shapes, and `calls`."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Sequence

from harness.call_trace.weights import Shape, Weights, folded, label, number
from harness.errors import InputError
from harness.formats.text import plain

CALLS = "calls"
LIMITS = {"bytes": 4 << 20, "rows": 4096, "columns": 256}
LEAST_CALLS, MOST_CALLS = 1e-18, 1e18
"""Bounds within which calls can be divided among rows and summed as floats."""
FIX = "the file needs a column for each dimension and the column calls"


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
