"""JSON lines, tables, lists of facts and notes, printed without control characters."""

from __future__ import annotations

import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

import msgspec

from harness.formats.text import plain
from harness.verdict import COMPILED, REFERENCE_LINE, Verdict
from kopt_tui.snapshot import phrases, verdict_words
from kopt_tui.snapshot.phrases import clean

PIPE_COLUMNS = 80
"""Width of wrapped text where no terminal says one."""
Cell = str | int | float | None


def print_json(value: object) -> None:
    """Print a value of structs, lists and mappings as one line of JSON.

    Names of files that are not UTF-8 are escaped, as Python's json does.
    """
    try:
        print(msgspec.json.encode(value).decode())
    except UnicodeEncodeError:
        import json  # start-up time

        print(json.dumps(msgspec.to_builtins(value)))


def print_note(text: str) -> None:
    """Print a remark beside a command's results, as a line of standard error."""
    print(f"kopt: {clean(text)}", file=sys.stderr, flush=True)


def print_bytes(data: bytes) -> None:
    """Print lines of an untrusted file or program, without control characters."""
    text = data.decode(errors="replace").replace("\r\n", "\n")
    sys.stdout.write(plain(text, max(len(text), 1)))
    sys.stdout.flush()


def print_table(headers: Sequence[str], rows: Iterable[Sequence[Cell]], *,
                right: str = "", notes: Sequence[Sequence[str]] = ()) -> None:
    """Print a table, at a terminal clipped at its width.

    Columns named in `right` (space-separated) are aligned to the right. The `notes` of each row
    follow it, wrapped.
    """
    cells = [list(headers), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    limit = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for number, row in enumerate(cells):
        padded = [_pad(cell, size, name in right.split())
                  for cell, size, name in zip(row, widths, headers, strict=True)]
        line = "  ".join(padded).rstrip()
        print(line if limit is None else clip(line, limit))
        for note in notes[number - 1] if notes and number else ():
            print_wrapped(note, limit or PIPE_COLUMNS)


def print_wrapped(text: str, width: int) -> None:
    """Print a text indented, in lines of at most `width` columns."""
    print(textwrap.fill(clean(text), width, initial_indent="  ", subsequent_indent="    "))


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


COLUMNS = {"class": "class", "outcome": "outcome", "latency": "latency", "incumbent": "incumbent",
           "other": "", "speedup": "speedup", "change": "change", "roofline": "of roofline",
           "error budget": "error budget", "pairs": "pairs", "note": "note"}
"""Cells of a config class and the headings of their columns."""


def print_verdict(verdict: Verdict, title: str = "") -> None:
    """Print everything that a person needs of a verdict."""
    print(phrases.clean(title + verdict_words.describe(verdict).headline))
    if verdict.rows:
        cells = ({**verdict_words.class_cells(row), "class": f"{row.config_class} (core)"
                  if row.core else row.config_class} for row in verdict.rows)
        names = [name for name in COLUMNS
                 if name != "other" or (verdict.latency_kind == "reported"
                                        and any(row.other_us for row in verdict.rows))]
        other = "kernel" if verdict.latency_kind == "reported" and not verdict.by_kernel_time \
            else "call"
        print_table([COLUMNS[name] or other for name in names],
                    ([row[name] for name in names] for row in cells),
                    right=f"latency incumbent {other} change")
    for finding in verdict.audit:
        print(phrases.clean(f"! {finding.severity}: {finding.detail}"))
    for note in verdict.notes:
        print(phrases.clean(f"- {note}"))
    for evidence in verdict.evidence:
        if evidence.kind in (COMPILED, REFERENCE_LINE):
            print(phrases.clean(f"- {evidence.kind}: {evidence.detail}"))


def exit_code(verdict: Verdict) -> int:
    """Return 1 for an invalid or incorrect candidate, or one that the audit rejects, else 0."""
    return 0 if verdict_words.describe(verdict).outcome == "correct" else 1
