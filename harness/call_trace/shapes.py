"""Turns counted calls into weights of shapes, and writes them as a CSV file.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.call_trace.counts import Cell, Counts
from harness.call_trace.weights import folded, number
from harness.call_trace.weights_csv import CALLS, LIMITS
from harness.errors import InputError, Refused
from harness.formats.quantities import counted
from harness.formats.text import plain
from harness.target import Arg, Target

Cells = tuple[str, ...]
ODD = 3
"""The most kinds of uncounted calls that the notes name."""


@dataclass(frozen=True, kw_only=True)
class DimensionSource:
    """Where a dimension can be read: an argument and an axis of its shape (None: its value)."""

    arg: str
    axis: int | None = None


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """The dimensions of a kernel's classes, each with the arguments that show it.

    `hidden` are dimensions that no argument shows directly.
    """

    columns: tuple[str, ...]
    sources: tuple[tuple[DimensionSource, ...], ...]
    args: tuple[Arg, ...]
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ShapeTable:
    """Shapes and their calls, the most called first."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cells, int], ...]
    notes: tuple[str, ...] = ()

    @property
    def calls(self) -> int:
        return sum(calls for _, calls in self.rows)


def dimensions(target: Target) -> Dimensions:
    """Return the dimensions to count by. Raises InputError if no argument shows any."""
    names = list(dict.fromkeys(name for one in target.classes for name in one.shape))
    found: dict[str, list[DimensionSource]] = {name: [] for name in names if name and name != CALLS}
    for arg in target.args:
        for axis, entry in enumerate(arg.shape or ()):
            if str(entry).strip() in found:
                found[str(entry).strip()].append(DimensionSource(arg=arg.name, axis=axis))
        if arg.shape is None and str(arg.value).strip() in found:
            found[str(arg.value).strip()].append(DimensionSource(arg=arg.name))
    shown = {name: tuple(sources) for name, sources in found.items() if sources}
    hidden = tuple(name for name in names if name not in shown)
    if not shown:
        raise InputError("no argument shows a dimension of the classes directly: "
                         + (", ".join(hidden) or "they have none"), where="args",
                         fix="use a dimension's name as a shape entry or a value of an argument")
    used = {source.arg for sources in shown.values() for source in sources}
    return Dimensions(columns=tuple(shown), sources=tuple(shown.values()), hidden=hidden,
                      args=tuple(arg for arg in target.args if arg.name in used))


def of_kernel(wanted: Dimensions, counts: Counts) -> ShapeTable:
    """Return a kernel's calls by the dimensions of its classes."""
    total: Counter[Cells] = Counter()
    apart: Counter[str] = Counter()
    odd: Counter[str] = Counter()
    for one in counts.seen:
        if fault := _no_call(wanted, one.cells):
            odd[fault] += one.calls
            continue
        cells = []
        for column, sources in zip(wanted.columns, wanted.sources, strict=True):
            read = {source.arg: value for source in sources
                    if (value := _value(source, one.cells)) is not None}
            cells.append(next(iter(read.values()), ""))
            if len(set(folded(tuple(read.values())))) > 1:
                apart[f"{column} differs between {' and '.join(read)}: counted as "
                      f"{next(iter(read))} has it"] += one.calls
        if all(cells):
            total[folded(cells)] += one.calls
        else:
            missing = wanted.columns[cells.index("")]
            odd[f"no argument shows {missing}"] += one.calls
    notes = [f"no argument shows {', '.join(wanted.hidden)} as it is: not in the file"] \
        if wanted.hidden else []
    notes += [f"{counted(calls, 'call')} in which {what}" for what, calls in apart.most_common(ODD)]
    return _table(wanted.columns, total, [*notes, *_left_out(odd), *_uncounted(counts)])


def _no_call(wanted: Dimensions, cells: Mapping[str, Cell]) -> str:
    """Return why a call's arguments do not fit the task, "" if they do."""
    for arg in wanted.args:
        found = cells.get(arg.name)
        if arg.shape is None or found is None:
            continue
        has = f"{arg.name} has the shape {list(found)}" if isinstance(found, tuple) else \
            f"{arg.name} is no array"
        if not isinstance(found, tuple) or len(found) != len(arg.shape) or any(
                isinstance(entry, int) and entry != size
                for entry, size in zip(arg.shape, found, strict=True)):
            return f"{has}, not [{', '.join(map(str, arg.shape))}]"
    return ""


def _value(source: DimensionSource, cells: Mapping[str, Cell]) -> str | None:
    found = cells.get(source.arg)
    if source.axis is not None:
        return str(found[source.axis]) if isinstance(found, tuple) else None
    if found is None or isinstance(found, tuple):
        return None
    return str(int(found)) if isinstance(found, bool) else _text(found)


def of_command(columns: Sequence[str] | None, counts: Counts) -> ShapeTable:
    """Return a function's calls by its scalar arguments, limited to `columns` if given.

    Raises Refused if it has none.
    """
    names = list(dict.fromkeys(name for one in counts.seen for name in one.cells))
    scalar = [name for name in names if name != CALLS and all(
        _is_scalar(one.cells.get(name)) for one in counts.seen)]
    kept = [name for name in scalar if columns is None or name in columns]
    if counts.seen and not kept:
        asked = f" of {', '.join(columns)}" if columns else ""
        raise Refused(f"no argument{asked} is a number or a text in all calls",
                      where="--of", fix="name a function whose arguments distinguish the shapes")
    total: Counter[Cells] = Counter()
    for one in counts.seen:
        total[folded([_text(one.cells[name]) for name in kept])] += one.calls
    missing = [name for name in (names if columns is None else columns) if name not in kept]
    what = "no number or text in all calls" if columns is None else "no such argument in all calls"
    notes = [f"{what}: {', '.join(missing)}, not in the file"] if missing else []
    return _table(kept[:LIMITS["columns"] - 1], total, [*notes, *_uncounted(counts)])


def _is_scalar(cell: Cell) -> bool:
    return cell is not None and not isinstance(cell, tuple)


def _text(cell: Cell) -> str:
    """Return a cell as text, in the form that reading the file gives."""
    return plain(str(cell).strip(), 80).strip()


def _left_out(odd: Counter[str]) -> list[str]:
    told = [f"{counted(calls, 'call')} not counted: {what}" for what, calls in odd.most_common(ODD)]
    rest = sum(odd.values()) - sum(calls for _, calls in odd.most_common(ODD))
    if rest:
        told.append(f"{counted(rest, 'call')} not counted for other reasons of that kind")
    return told


def _uncounted(counts: Counts) -> list[str]:
    told = []
    if counts.unread:
        told.append(f"{counted(counts.unread, 'call')} not counted: the arguments could not be "
                    "read")
    if counts.other:
        told.append(f"{counted(counts.other, 'call')} not counted: of too many different shapes")
    return told + [plain(note) for note in counts.notes]


def _table(columns: Sequence[str], total: Counter[Cells], notes: Iterable[str]) -> ShapeTable:
    rows = sorted(total.items(), key=lambda row: (-row[1], [_rank(cell) for cell in row[0]]))
    return ShapeTable(columns=tuple(columns), rows=tuple(rows), notes=tuple(notes))


def _rank(cell: str) -> tuple[bool, float, str]:
    value = number(cell)
    return value is None, value or 0.0, cell


def render(table: ShapeTable) -> tuple[bytes, ShapeTable]:
    """Return the file's bytes and the table of its rows: the most called shapes that fit."""
    lines = [_line((*table.columns, CALLS))]
    size = len(lines[0])
    for cells, calls in table.rows[:LIMITS["rows"]]:
        line = _line((*cells, str(calls)))
        size += len(line)
        if size > LIMITS["bytes"]:
            break
        lines.append(line)
    kept = table.rows[:len(lines) - 1]
    if len(kept) == len(table.rows):
        return b"".join(lines), table
    lost = sum(calls for _, calls in table.rows[len(kept):])
    told = (f"{len(table.rows) - len(kept)} of {len(table.rows)} shapes, {lost / table.calls:.1%} "
            f"of the calls, are not in the file: it has the most called ones")
    return b"".join(lines), ShapeTable(columns=table.columns, rows=kept, notes=(*table.notes, told))


def _line(cells: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8")
