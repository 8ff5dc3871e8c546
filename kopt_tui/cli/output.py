"""JSON lines, tables, Markdown, facts and notes, printed without control characters."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from harness.formats.text import plain
from harness.verdict import COMPILED, REFERENCE_LINE, SCORE, Verdict
from kopt_tui.cli.text_lines import clip, columns, print_text, terminal_width, wrapped
from kopt_tui.snapshot import phrases, verdict_words
from kopt_tui.snapshot.phrases import clean

Cell = str | int | float | None
PIPE_COLUMNS = 80
"""Width of a table's notes where there is no terminal."""
GAP = 2
"""Spaces between columns."""
LEAST_TEXT = 24
"""If fewer cells are left for a table's last column, it is printed below the others."""
LEAST_CELL = 12
"""Cells are not clipped to less than this width."""
ESCAPE = re.compile(r"\\([\\`*_{}\[\]()#+.!|<>~-])")
BORDER = re.compile(r"(?<!\\)\|")
ITEM = re.compile(r"(- |\d+\. )?")
"""Parts of Markdown: an escaped character, a border between cells, the mark of an item."""


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
    print_text(f"kopt: {clean(text)}", sys.stderr)


def print_bytes(data: bytes) -> None:
    """Print lines of an untrusted file or program, without control characters."""
    text = data.decode(errors="replace").replace("\r\n", "\n")
    sys.stdout.write(plain(text, max(len(text), 1)))
    sys.stdout.flush()


def print_table(headers: Sequence[str], rows: Iterable[Sequence[Cell]], *, right: str = "",
                spare: Sequence[str] = (), notes: Sequence[Sequence[str]] = ()) -> None:
    """Print a table.

    At a terminal that is too narrow, columns named in `spare` are left out in that order; the last
    column continues on further lines, and the others are clipped. Columns named in `right`
    (space-separated) are aligned to the right. The `notes` of each row follow it.
    """
    cells = [list(headers), *([_text(cell) for cell in row] for row in rows)]
    limit = terminal_width(sys.stdout)
    for name in spare:
        if limit is not None and name in cells[0] and _needed_width(_widths(cells)) > limit:
            at = cells[0].index(name)
            cells = [row[:at] + row[at + 1:] for row in cells]
    *widths, last = _widths(cells)
    is_below = False
    if limit is not None:
        is_long = last > LEAST_TEXT and sum(widths) + LEAST_TEXT > limit + GAP
        widths = _shrunk_widths(widths, limit + GAP - (0 if is_long else min(last, LEAST_TEXT)))
        is_below = sum(widths) + min(last, LEAST_TEXT) > limit + GAP
    before = sum(widths)
    for number, row in enumerate(cells):
        start = "".join(_pad(clip(cell, size - GAP), size - GAP, name in right.split()) + " " * GAP
                        for cell, size, name in zip(row, widths, cells[0], strict=False))
        further = list(notes[number - 1]) if notes and number else []
        if is_below:
            print(start.rstrip())
            further = [row[-1], *further]
        else:
            first, *others = [row[-1]] if limit is None else wrapped(row[-1], limit - before, 0)
            if limit is None or before + last - GAP <= limit:
                first = _pad(first, last - GAP, cells[0][-1] in right.split())
            print("\n".join([(start + first).rstrip(), *(" " * before + line for line in others)]))
        for note in filter(None, further):
            print("\n".join(wrapped(f"  {clean(note)}", limit or PIPE_COLUMNS, 4)))


def print_markdown(text: str) -> None:
    """Print Markdown; at a terminal lines break between words, and tables have columns."""
    if terminal_width(sys.stdout) is None:
        sys.stdout.write(text)
        return
    for is_table, block in groupby(text.splitlines(), key=lambda line: line.startswith("|")):
        if is_table:
            _print_markdown_table(list(block))
            continue
        for line in block:
            mark = ITEM.match(line)
            print_text(ESCAPE.sub(r"\1", line), indent=len(mark[0]) if mark else 0)


def _print_markdown_table(lines: Sequence[str]) -> None:
    head, _, *rows = [[ESCAPE.sub(r"\1", cell.strip()).replace("`", "")
                       for cell in BORDER.split(line.strip())[1:-1]] for line in lines]
    print_table(head, rows, spare=("slot", "commit"))


def _needed_width(widths: Sequence[int]) -> int:
    """Return how wide a terminal must be for all but the text of a long last column."""
    *others, last = widths
    return sum(others) + (last if last <= LEAST_TEXT else 0) - GAP


def _shrunk_widths(widths: Sequence[int], limit: int) -> list[int]:
    """Return widths that fit a limit, if possible: the widest are narrowed down to LEAST_CELL."""
    shrunk = list(widths)
    while sum(shrunk) > limit and (widest := max(shrunk, default=0)) > LEAST_CELL:
        shrunk[shrunk.index(widest)] -= 1
    return shrunk


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    """Return the widths of a table's columns, each with the gap that follows it."""
    return [max(map(columns, column)) + GAP for column in zip(*cells, strict=True)]


def print_facts(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Print a line per name and value, except for values that are empty."""
    facts = [(name, _text(value)) for name, value in pairs if value not in (None, "")]
    width = max((columns(name) for name, _ in facts), default=0)
    for name, value in facts:
        print_text(f"{_pad(name, width, False)}  {value}", indent=width + 2)


def _text(cell: Cell) -> str:
    return "" if cell is None else clean(str(cell))


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - columns(text))
    return space + text if right else text + space


COLUMNS = {"class": "class", "outcome": "outcome", "latency": "latency", "incumbent": "incumbent",
           "other": "", "speedup": "speedup", "change": "change", "roofline": "of roofline",
           "error budget": "error budget", "pairs": "pairs", "note": "note"}
"""Cells of a config class and the headings of their columns; "" depends on the verdict."""
SPARE = ("change", "pairs", "error budget", "call", "kernel", "of roofline")
"""Columns that a narrow terminal leaves out, in this order; outcome and speedup say the change."""


def print_verdict(verdict: Verdict, title: str = "") -> None:
    """Print everything that a person needs of a verdict."""
    print_text(phrases.clean(title + verdict_words.describe(verdict).summary_line))
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
                    right=f"latency incumbent {other} change", spare=SPARE)
    for finding in verdict.audit:
        print_text(phrases.clean(f"! {finding.severity}: {finding.detail}"))
    for note in verdict.notes:
        print_text(phrases.clean(f"- {note}"))
    for evidence in verdict.evidence:
        if evidence.kind in (COMPILED, REFERENCE_LINE) or (
                evidence.kind == SCORE and verdict.correct):
            print_text(phrases.clean(f"- {evidence.kind}: {evidence.detail}"))


def exit_code(verdict: Verdict) -> int:
    """Return 0 for a correct candidate that the audit does not reject, else 1."""
    return 0 if verdict_words.describe(verdict).outcome == "correct" else 1
