"""Markdown as lines: headings, paragraphs, lists and tables that fit the terminal.

Textual's Markdown widget makes one widget per block. To show a report of 317 lines it needed 453
widgets and 4.5 to 6.2 s, this pane 1 widget and 0.06 s (two busy cores of an AMD EPYC).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, zip_longest

from rich.cells import cell_len

from kopt_tui.widgets.pane import ContentPane, fit
from kopt_tui.widgets.patch_pane import wrapped
from kopt_tui.widgets.tones import Line, Span

ESCAPE = re.compile(r"\\([\\`*_{}\[\]()#+.!|<>~-])")
INLINE = re.compile(r"(\*\*.+?\*\*|(?<!\\)`[^`]+`)")
WORD = re.compile(r"\s*\S+\s*")
RULE = re.compile(r"^:?-{2,}:?$")
NARROWEST = 6
"""The fewest cells that a column of a table gets."""


class ReportPane(ContentPane[tuple[str, str]]):
    """The report of one campaign, as Markdown, and the campaign's name."""

    TITLE = "report"
    EMPTY = "writing the report"
    content: tuple[str, str] = "", ""

    def title_note(self) -> str:
        return self.content[1]

    def compose_lines(self, width: int) -> list[Line]:
        text, _ = self.content
        return markdown_lines(text, width - 1) if text else [((f" {self.EMPTY}", "dim"),)]


def markdown_lines(text: str, width: int, *, wraps: bool = False) -> list[Line]:
    """Return Markdown as lines of a width: the subset that kopt's reports and pages use.

    Cells of a table that are too long are clipped, or wrapped if `wraps`.
    """
    lines: list[Line] = []
    for kind, group in groupby(_kinds(text.split("\n")), key=lambda pair: pair[0]):
        block = [line for _, line in group]
        if kind == "table":
            lines += _table(block, width, wraps)
        elif kind != "fence":
            draw = _code if kind == "code" else _paragraph
            lines += [part for line in block for part in draw(line, width)]
    return lines


def _kinds(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each line after its kind; a fence ends with at least its start's backticks."""
    fence = ""
    for line in lines:
        is_end = line.rstrip().startswith(fence) and not line.strip().strip("`")
        if fence:
            yield ("fence" if is_end else "code"), line
            fence = "" if is_end else fence
        elif line.startswith("```"):
            fence = "`" * (len(line) - len(line.lstrip("`")))
            yield "fence", line
        else:
            yield ("table" if line.startswith("|") else "text"), line


def _code(line: str, width: int) -> list[Line]:
    return wrapped((("   ", "dim"), (line, "info")), width, 3)


def _paragraph(line: str, width: int) -> Iterator[Line]:
    heading = re.match(r"^(#+) +(.*)$", line)
    if heading:
        tones = "bold info" if len(heading[1]) == 1 else "bold under"
        yield ((" ", "plain"), (_plain(heading[2]), tones))
        return
    indent = len(line) - len(line.lstrip())
    is_bullet = line.lstrip().startswith("- ")
    body = line.strip().removeprefix("- ") if is_bullet else line.strip()
    mark = " " * (indent + 1) + ("• " if is_bullet else "")
    words = [(word, tones) for text, tones in _inline(body) for word in WORD.findall(text)]
    yield from _filled((mark, "dim"), words, width)


def _filled(mark: Span, words: Sequence[Span], width: int) -> Iterator[Line]:
    """Break words into lines after a mark; further lines are indented by its width."""
    row, used = [mark], cell_len(mark[0])
    for word, tones in words:
        if used + cell_len(word.rstrip()) > width and len(row) > 1:
            yield from _row(row, width)
            row, used = [(" " * cell_len(mark[0]), "plain")], cell_len(mark[0])
        row.append((word, tones))
        used += cell_len(word)
    yield from _row(row, width)


def _row(row: Sequence[Span], width: int) -> list[Line]:
    """Return words as a line without a space at its end; a word that is too long is cut."""
    *words, (last, tones) = row
    return wrapped((*words, (last.rstrip() or last, tones)), width, cell_len(row[0][0]))


def _inline(text: str) -> list[Span]:
    """Return spans for bold, code and plain text."""
    spans: list[Span] = []
    for part in INLINE.split(text):
        if part.startswith("**") and len(part) > 4:
            spans.append((_plain(part[2:-2]), "bold"))
        elif part.startswith("`") and len(part) > 2:
            spans.append((part[1:-1], "info"))
        elif part:
            spans.append((_plain(part), "plain"))
    return spans


def _plain(text: str) -> str:
    return ESCAPE.sub(r"\1", text)


def _table(block: Sequence[str], width: int, wraps: bool) -> list[Line]:
    """Return a table whose widest columns are narrowed until it fits."""
    rows = [[_plain(cell.strip()).replace("`", "").replace("**", "")
             for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in block]
    rows = [row for row in rows if not any(row) or not all(map(RULE.match, filter(None, row)))]
    columns = max(len(row) for row in rows)
    sizes = [max((cell_len(row[i]) for row in rows if i < len(row)), default=0)
             for i in range(columns)]
    while sum(sizes) + 2 * columns > width and max(sizes) > NARROWEST:
        sizes[sizes.index(max(sizes))] -= 1
    has_head = any(rows[0])
    lines: list[Line] = []
    for number, row in enumerate(rows if has_head else rows[1:]):
        tones = "dim" if has_head and number == 0 else "plain"
        cells = [textwrap.wrap(cell, size) if wraps else [cell]
                 for cell, size in zip(row, sizes, strict=False)]
        for parts in zip_longest(*cells, fillvalue=""):
            texts = (fit(parts[i] if i < len(parts) else "", sizes[i]) for i in range(columns))
            lines.append(((" " + "  ".join(texts), tones),))
    return lines
