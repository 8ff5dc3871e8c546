"""A candidate's patch as numbered, highlighted lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len, chop_cells

from kopt_tui.widgets.pane import ContentPane
from kopt_tui.widgets.tones import Line, Span

HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
FILE = re.compile(r"^\+\+\+ (?:b/)?(.+?)\s*$")
HIGHLIGHTED_LINES = 3000
TONES = (("Comment.Preproc", "accent"), ("Comment", "dim"), ("Keyword.Type", "info"),
         ("Keyword", "accent"), ("Literal.String", "warn"), ("Literal.Number", "info"),
         ("Name.Function", "bold"), ("Name.Builtin", "info"))
"""Kinds of Pygments tokens and their tones; a kind stands before the one that contains it."""

Row = tuple[str, int, str]
"""A line of a patch: "+", "-" or " " for code, "@" for a hunk's start, "" for other lines; its
number in the new file; its text."""


def patch_rows(patch: str) -> list[Row]:
    """Return the lines of a unified diff.

    The counts in a hunk's first line say which lines are code, as code may look like a header.
    """
    rows: list[Row] = []
    number = old = new = 0
    for text in patch.removesuffix("\n").split("\n") if patch else ():
        sign = text[:1] or " "
        if (old or new) and sign in "+- ":
            old -= sign != "+"
            new -= sign != "-"
            number += sign != "-"
            rows.append((sign, number, text[1:]))
        elif hunk := HUNK.match(text):
            old, new = int(hunk[1] or 1), int(hunk[3] or 1)
            number = int(hunk[2]) - bool(new)
            rows.append(("@", number, text))
        elif not text.startswith("index "):
            rows.append(("", number, text))
    return rows


def patch_lines(patch: str, *, highlighted: bool) -> list[Line]:
    """Return a unified diff as lines: number in the new file, sign, code.

    Highlighting loads Pygments and takes up to a second, too long for the thread that draws.
    """
    rows = patch_rows(patch)
    code = _highlighted(rows) if highlighted and len(rows) <= HIGHLIGHTED_LINES else {}
    lines: list[Line] = []
    for index, (sign, number, text) in enumerate(rows):
        if sign == "-":
            lines.append((("     ", "dim"), ("-", "bad bold"), (text, "bad dim")))
        elif sign in ("+", " "):
            body = code.get(index, ((text, "good" if sign == "+" and not code else "plain"),))
            lines.append(((f"{number:4} ", "dim"), (sign, "good bold"), *body))
        else:
            tones = "info" if sign else "bold" if text.startswith("+++ ") else "dim"
            lines.append(((f"     {text}", tones),))
    return lines


def _highlighted(rows: Sequence[Row]) -> dict[int, Line]:
    """Return the highlighted code of the new file, by index of the diff's line."""
    lines: dict[int, Line] = {}
    path, block = "", list[tuple[int, str]]()
    for index, (sign, _, text) in enumerate([*rows, ("", 0, "")]):
        if sign in ("+", " "):
            block.append((index, text))
        elif not sign:
            lines |= _highlight(path, block)
            named = FILE.match(text)
            path, block = named[1] if named else path, []
    return lines


def _highlight(path: str, code: list[tuple[int, str]]) -> dict[int, Line]:
    from pygments.lexers import get_lexer_for_filename  # type: ignore[import-untyped]
    from pygments.token import string_to_tokentype  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        lexer = get_lexer_for_filename(path, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return {}
    lines: list[list[Span]] = [[]]
    for token, text in lexer.get_tokens("\n".join(text for _, text in code)):
        tone = next((tone for kind, tone in TONES if token in string_to_tokentype(kind)), "plain")
        first, *rest = text.split("\n")
        lines[-1].append((first, tone))
        lines.extend([(part, tone)] for part in rest)
    return {index: tuple(spans) for (index, _), spans in zip(code, lines, strict=False)}


def wrapped(line: Line, width: int, indent: int) -> list[Line]:
    """Return a line cut into lines of at most `width` cells, the later ones indented."""
    width = max(2, width)  # as many as one wide character takes
    indent = min(indent, width - 2)
    rows: list[list[Span]] = [[]]
    room = width
    for text, tones in line:
        while text:
            part = chop_cells(text, room)[0] if room and room >= cell_len(text[0]) else ""
            rows[-1].append((part, tones))
            text = text[len(part):]
            room -= cell_len(part)
            if text:
                rows.append([(" " * indent, "plain")])
                room = width - indent
    return [tuple(row) for row in rows]


class PatchPane(ContentPane[tuple[list[Line], str]]):
    """The lines of a patch, and why it is incomplete or absent.

    Long lines wrap, so that nothing of them is hidden.
    """

    TITLE = "patch"
    content: tuple[list[Line], str] = [], ""

    def title_note(self) -> str:
        code, note = self.content
        signs = [line[1][0] for line in code if len(line) > 1]
        return note or (f"+{signs.count('+')} -{signs.count('-')}" if code else "")

    def compose_lines(self, width: int) -> list[Line]:
        code, note = self.content
        if not code:
            return [((f" {note or 'no patch'}", "dim"),)]
        return [part for line in code for part in wrapped(line, width, 8)]
