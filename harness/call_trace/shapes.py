"""Turns counted calls into weights of shapes, and writes them as a CSV file."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.call_trace.counts import Cell, Counts
from harness.call_trace.weights import CALLS, LIMITS, folded, number
from harness.errors import InputError, Refused
from harness.formats.quantities import counted
from harness.formats.text import plain
from harness.tasks.target import Arg, Target

Cells = tuple[str, ...]
DimensionSource = tuple[str, int | None]
"""Where a dimension can be read: an argument and an axis of its shape (None: its value)."""
MOST_NOTES = 3
"""Most reasons for uncounted calls, and most disagreements, that the notes name."""


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """The arguments that show each dimension; `hidden` are dimensions that no argument shows."""

    sources: Mapping[str, Sequence[DimensionSource]]
    args: tuple[Arg, ...]
    hidden: tuple[str, ...]


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
    names = list(dict.fromkeys(name for config in target.classes for name in config.shape))
    sources_of: dict[str, list[DimensionSource]] = {
        name: [] for name in names if name and name != CALLS}
    for arg in target.args:
        entries = [(None, arg.value)] if arg.shape is None else enumerate(arg.shape)
        for axis, entry in entries:
            if str(entry).strip() in sources_of:
                sources_of[str(entry).strip()].append((arg.name, axis))
    shown = {name: sources for name, sources in sources_of.items() if sources}
    hidden = tuple(name for name in names if name not in shown)
    if not shown:
        raise InputError("no argument shows a dimension of the classes directly: "
                         + (", ".join(hidden) or "they have none"), where="args",
                         fix="use a dimension's name as a shape entry or a value of an argument")
    used = {arg for sources in shown.values() for arg, _ in sources}
    return Dimensions(sources=shown, hidden=hidden,
                      args=tuple(arg for arg in target.args if arg.name in used))


def of_kernel(dimensions: Dimensions, counts: Counts) -> ShapeTable:
    """Return a kernel's calls by the dimensions of its classes."""
    total: Counter[Cells] = Counter()
    disagreements: Counter[str] = Counter()
    uncounted: Counter[str] = Counter()
    for call in counts.seen:
        if fault := _mismatch(dimensions, call.cells):
            uncounted[fault] += call.calls
            continue
        cells = []
        for column, sources in dimensions.sources.items():
            read = {arg: value for arg, axis in sources
                    if (value := _value(call.cells.get(arg), axis)) is not None}
            cells.append(next(iter(read.values()), ""))
            if len(set(folded(tuple(read.values())))) > 1:
                disagreements[f"{column} differs between {' and '.join(read)}: counted with "
                              f"{next(iter(read))}'s value"] += call.calls
        if all(cells):
            total[folded(cells)] += call.calls
        else:
            missing = list(dimensions.sources)[cells.index("")]
            uncounted[f"no argument shows {missing}"] += call.calls
    notes = [f"no argument shows {', '.join(dimensions.hidden)} directly: not in the file"] \
        if dimensions.hidden else []
    notes += [f"{counted(calls, 'call')} in which {what}"
              for what, calls in disagreements.most_common(MOST_NOTES)]
    named = uncounted.most_common(MOST_NOTES)
    notes += [f"{counted(calls, 'call')} not counted: {what}" for what, calls in named]
    if rest := uncounted.total() - sum(calls for _, calls in named):
        notes.append(f"{counted(rest, 'call')} not counted: other reasons")
    return _table(tuple(dimensions.sources), total, [*notes, *_uncounted(counts)])


def _mismatch(dimensions: Dimensions, cells: Mapping[str, Cell]) -> str:
    """Return why a call's arguments do not fit the task, "" if they do."""
    for arg in dimensions.args:
        cell = cells.get(arg.name)
        if arg.shape is None or cell is None:
            continue
        has = f"{arg.name} has the shape {list(cell)}" if isinstance(cell, tuple) else \
            f"{arg.name} is not an array"
        if not isinstance(cell, tuple) or len(cell) != len(arg.shape) or any(
                isinstance(entry, int) and entry != size
                for entry, size in zip(arg.shape, cell, strict=True)):
            return f"{has}, not [{', '.join(map(str, arg.shape))}]"
    return ""


def _value(cell: Cell, axis: int | None) -> str | None:
    if axis is not None:
        return str(cell[axis]) if isinstance(cell, tuple) else None
    if isinstance(cell, tuple | None):
        return None
    return str(int(cell)) if isinstance(cell, bool) else _text(cell)


def of_command(columns: Sequence[str] | None, counts: Counts) -> ShapeTable:
    """Return the calls by scalar arguments, all or those in `columns`. Raises Refused if none."""
    names = list(dict.fromkeys(name for call in counts.seen for name in call.cells))
    scalar = [name for name in names if name != CALLS and all(
        not isinstance(call.cells.get(name), tuple | None) for call in counts.seen)]
    kept = [name for name in scalar if columns is None or name in columns]
    if counts.seen and not kept:
        arguments = f"none of the arguments {', '.join(columns)}" if columns else "no argument"
        raise Refused(f"{arguments} is a number or a string in all calls",
                      where="--of", fix="name a function whose arguments distinguish the shapes")
    total: Counter[Cells] = Counter()
    for call in counts.seen:
        total[folded([_text(call.cells[name]) for name in kept])] += call.calls
    missing = [name for name in (names if columns is None else columns) if name not in kept]
    notes = [f"not a number or string in every call, so not in the file: {', '.join(missing)}"] \
        if missing else []
    return _table(kept[:LIMITS["columns"] - 1], total, [*notes, *_uncounted(counts)])


def _text(cell: Cell) -> str:
    """Return a cell as text, in the form that reading the file gives."""
    return plain(str(cell).strip(), 80).strip()


def _uncounted(counts: Counts) -> list[str]:
    notes = []
    if counts.unread:
        notes.append(f"{counted(counts.unread, 'call')} not counted: unreadable arguments")
    if counts.other:
        notes.append(f"{counted(counts.other, 'call')} not counted: too many different shapes")
    return notes + [plain(note) for note in counts.notes]


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
    share = sum(calls for _, calls in table.rows[len(kept):]) / table.calls
    note = (f"{len(table.rows) - len(kept)} of {len(table.rows)} shapes, {share:.1%} of the calls, "
            "are not in the file, which has the most called ones")
    return b"".join(lines), ShapeTable(columns=table.columns, rows=kept, notes=(*table.notes, note))


def _line(cells: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8")
