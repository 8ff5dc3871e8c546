"""Markdown of the files for people: tables and lines that no text from outside can break."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence

from markupsafe import Markup

from harness.formats.text import one_line, plain

CELL, LINE = 1200, 2000
"""Most characters of a table's cell and of a line; longer texts are cut."""


def stamp(at: float, utc_offset_s: int | None = None) -> str:
    """Return a time to the minute, such as 2026-11-22 10:05: local, or at an offset from UTC."""
    moment = time.localtime(at) if utc_offset_s is None else time.gmtime(at + utc_offset_s)
    return time.strftime("%Y-%m-%d %H:%M", moment)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Return a table that ends in a newline; it escapes every cell."""
    lines = ["| " + " | ".join(map(cell, cells)) + " |" for cells in (head, *rows)]
    return Markup("\n".join([lines[0], "|" + "---|" * len(head), *lines[1:], ""]))


def line(text: str, limit: int = LINE) -> str:
    """Return a text as one line in which nothing starts a tag or a link."""
    return one_line(text, limit).replace("<", "\\<").replace("](", "]\\(")


def unescaped(text: str) -> str:
    """Undo the escaping of `line`; what `line` removed or cut stays lost."""
    return text.replace("\\<", "<").replace("]\\(", "](")


def fenced(text: str, limit: int, language: str = "") -> str:
    """Return a text as a code block that no line of the text can close."""
    inside = plain(text, limit).rstrip()
    longest = max(map(len, re.findall("`+", inside)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{inside}\n{fence}"


def cell(text: str) -> str:
    return line(text, CELL).replace("|", "/")
