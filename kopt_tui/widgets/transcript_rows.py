"""One entry of a transcript cut into the rows that its pane draws."""

from __future__ import annotations

import re

from rich.cells import cell_len

from engine.workers.transcript import TranscriptEntry
from kopt_tui.snapshot import phrases
from kopt_tui.widgets.tones import Line, Span

Row = tuple[int, int, int]
"""A part of an entry's line: the line's index (-1: the head, -2: a blank row), start, end."""

ROLES = {"system": ("system prompt", "dim"), "user": ("to the model", "accent"),
         "assistant": ("model", "info"), "tool": ("output", "plain"), "note": ("note", "warn")}
HEAD, BLANK = (-1, 0, 0), (-2, 0, 0)
INDENT = 2


class EntryRows:
    """One entry cut into rows of a width."""

    def __init__(self, entry: TranscriptEntry, width: int, query: str) -> None:
        self.entry = entry
        command = [] if entry.role == "tool" or not entry.command else entry.command.split("\n")
        text = entry.text.strip("\n").split("\n") if entry.text.strip() else []
        self.lines = [line.expandtabs(4).rstrip() for line in (*text, *command)]
        self._first_command = len(text)
        room = max(8, width - INDENT - 1)
        self.rows: list[Row] = [HEAD] if entry.at else []
        for index, line in enumerate(self.lines):
            self.rows += [(index, start, end) for start, end in
                          cuts(line, room, by_word=entry.role != "tool")]
        if entry.at:
            self.rows.append(BLANK)
        self._pattern = re.compile(re.escape(query), re.IGNORECASE) if query else None
        self._spans: dict[int, list[tuple[int, int]]] = {}

    def hits(self) -> list[int]:
        """Return the rows in which the query begins; the first row if it is in none of them."""
        hits = dict.fromkeys(
            at for at, (line, start, end) in enumerate(self.rows) if line >= 0
            for begin, _ in self._hits_in(line) if start <= begin < max(end, start + 1))
        return list(hits) or [0]

    def _hits_in(self, line: int) -> list[tuple[int, int]]:
        """Return where the query is in a line."""
        if line not in self._spans and self._pattern is not None:
            self._spans[line] = [match.span() for match in
                                 self._pattern.finditer(self.lines[line])]
        return self._spans.get(line, [])

    def line(self, row: int, width: int, *, is_hit: bool) -> Line:
        """Return a row as spans."""
        index, start, end = self.rows[row]
        if index < 0:
            return self._head(width, is_hit=is_hit) if index == -1 else ()
        is_command = index >= self._first_command
        tones = "bold" if is_command else "dim" if self.entry.role == "system" else "plain"
        mark = "▸" if is_hit else " "
        sign = "$ " if is_command and index == self._first_command and not start else "  "
        spans: list[Span] = [(mark, "accent bold"), (sign if is_command else " ", "info bold")]
        text, at = self.lines[index], start
        for begin, until in self._hits_in(index):
            begin, until = max(begin, start), min(until, end)
            if begin < until:
                spans += [(text[at:begin], tones), (text[begin:until], "reverse")]
                at = until
        return (*spans, (text[at:end], tones))

    def _head(self, width: int, *, is_hit: bool) -> Line:
        entry = self.entry
        name, tones = ROLES[entry.role]
        parts: list[Span] = [("▸" if is_hit else "─", "accent bold" if is_hit else "dim"),
                             (f" step {entry.step} " if entry.step else " ", "bold"),
                             (f"{name} ", f"{tones} bold")]
        if entry.role == "tool" and entry.exit_code is not None:  # an agent's stream states none
            is_ok = entry.exit_code == 0
            parts.append((f"{'✓' if is_ok else '✗'} exit {entry.exit_code} ",
                          "good" if is_ok else "bad bold"))
        if entry.cost_usd and entry.role == "assistant":
            parts.append((f"${entry.cost_usd:.4f} ", "plain"))
        parts.append((f"{phrases.clock(entry.at)} ", "dim"))
        if entry.role == "tool":
            parts.append((f"$ {' '.join(entry.command.split())} ", "dim"))
        room = width - sum(cell_len(text) for text, _ in parts)
        return (*parts, ("─" * room, "dim"))


def cuts(line: str, room: int, *, by_word: bool) -> list[tuple[int, int]]:
    """Return where a line is cut into rows of at most `room` cells: start and end of each."""
    if not line:
        return [(0, 0)]
    row_spans, start, is_ascii = [], 0, line.isascii()
    while start < len(line):
        end = start + room
        if not is_ascii:
            end, used = start, 0
            while end < len(line) and (used := used + cell_len(line[end])) <= room:
                end += 1
            end = max(end, start + 1)
        if by_word and end < len(line):
            space = line.rfind(" ", start + room // 3, end + 1)
            end = space + 1 if space > 0 else end
        row_spans.append((start, min(end, len(line))))
        start = end
    return row_spans
