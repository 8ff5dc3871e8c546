"""Plain tables and fact lists: aligned columns of harmless text, as wide as they need to be."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence

from kopt_tui.snapshot.phrases import clean

Cell = str | int | float | None


def show(headers: Sequence[str], rows: Iterable[Sequence[Cell]], *, right: str = "") -> None:
    """Print a table; columns named in `right` (space-separated) are aligned to the right."""
    for line in lines(headers, rows, right=right.split()):
        print(line)


def lines(headers: Sequence[str], rows: Iterable[Sequence[Cell]], *,
          right: Sequence[str] = (), width: int | None = None) -> list[str]:
    """Return the lines of a table; at a terminal the last column is cut at its edge."""
    cells = [list(headers), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    edge = width if width is not None else _edge()
    made = []
    for row in cells:
        padded = [_pad(cell, size, name in right)
                  for cell, size, name in zip(row, widths, headers, strict=True)]
        line = "  ".join(padded).rstrip()
        made.append(line if edge is None else clip(line, edge))
    return made


def facts(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Print "name  value" lines; what has no value is left out."""
    kept = [(name, _text(value)) for name, value in pairs if value not in (None, "")]
    width = max((columns(name) for name, _ in kept), default=0)
    for name, value in kept:
        print(f"{_pad(name, width, False)}  {value}")


def columns(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    return sum(_cells(character) for character in text)


def clip(text: str, width: int) -> str:
    """Return the text cut to a width, with an ellipsis where something is missing."""
    if columns(text) <= width:
        return text
    taken, used = [], 0
    for character in text:
        used += _cells(character)
        if used > width - 1:
            break
        taken.append(character)
    return "".join(taken) + "…"


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _text(cell: Cell) -> str:
    return "" if cell is None else clean(str(cell))


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - columns(text))
    return space + text if right else text + space


def _edge() -> int | None:
    """Return the terminal's width, None where output goes to a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
