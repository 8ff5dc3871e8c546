"""JSON lines, tables, lists of facts and notes, printed without control characters."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence

import msgspec

from harness.formats.text import plain
from kopt_tui.snapshot.phrases import clean

Cell = str | int | float | None


def print_json(value: object) -> None:
    """Print a value of structs, lists and mappings as one line of JSON."""
    print(msgspec.json.encode(value).decode())


def print_note(text: str) -> None:
    """Print a remark beside a command's results, as a line of standard error."""
    print(f"kopt: {clean(text)}", file=sys.stderr, flush=True)


def print_bytes(data: bytes) -> None:
    """Print lines of an untrusted file or program, without control characters."""
    text = data.decode(errors="replace").replace("\r\n", "\n")
    sys.stdout.write(plain(text, max(len(text), 1)))
    sys.stdout.flush()


def print_table(headers: Sequence[str], rows: Iterable[Sequence[Cell]], *,
                right: str = "") -> None:
    """Print a table, at a terminal clipped at its width.

    Columns named in `right` (space-separated) are aligned to the right.
    """
    cells = [list(headers), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    limit = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for row in cells:
        padded = [_pad(cell, size, name in right.split())
                  for cell, size, name in zip(row, widths, headers, strict=True)]
        line = "  ".join(padded).rstrip()
        print(line if limit is None else clip(line, limit))


def print_facts(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Print a line per name and value, except for values that are empty."""
    facts = [(name, _text(value)) for name, value in pairs if value not in (None, "")]
    width = max((columns(name) for name, _ in facts), default=0)
    for name, value in facts:
        print(f"{_pad(name, width, False)}  {value}")


def columns(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    return sum(_cells(character) for character in text)


def clip(text: str, width: int) -> str:
    """Return the text cut to a width, with an ellipsis in place of what was cut."""
    if columns(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += _cells(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + "…"


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _text(cell: Cell) -> str:
    return "" if cell is None else clean(str(cell))


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - columns(text))
    return space + text if right else text + space
