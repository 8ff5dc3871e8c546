"""Markdown of the files for people: stamps, tables and lines that no worker's words break out of.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

from harness.formats.text import plain

CELL, LINE = 300, 600


def stamp(at: float, utc_offset_s: int | None = None) -> str:
    """Return a time to the minute, such as 2026-11-22 10:05; local, unless an offset is given."""
    moment = time.localtime(at) if utc_offset_s is None else time.gmtime(at + utc_offset_s)
    return time.strftime("%Y-%m-%d %H:%M", moment)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table that ends in a newline; every cell is made harmless."""
    lines = ["| " + " | ".join(map(cell, cells)) + " |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:], ""])


def line(text: str, limit: int = LINE) -> str:
    """Return a text as one harmless line: no markup of it starts a tag or a link."""
    words = " ".join(plain(text, limit).split())
    return words.replace("<", "\\<").replace("](", "]\\(")


def unescaped(text: str) -> str:
    """Return what `line` was given, but for what `plain` took away."""
    return text.replace("\\<", "<").replace("]\\(", "](")


def cell(text: str) -> str:
    return line(text, CELL).replace("|", "/")


def gain(log_ratio: float | None) -> str:
    """Return ln(before / after) as a speedup and in percent: `1.25x (+25.0%)`."""
    if log_ratio is None:
        return "not measured"
    return f"{math.exp(log_ratio):.2f}x ({math.expm1(log_ratio):+.1%})"


def level(alpha: float | None) -> str:
    """Return at which error rate an interval stands, ` at alpha 0.05`, if that is known."""
    return "" if alpha is None else f" at alpha {alpha:.2g}"


def micros(value: float | None) -> str:
    return "" if value is None else f"{value:.3f} us"


def cost(value: float) -> str:
    return f", cost {value:g}" if value else ""
