"""Lines of text at a terminal: how wide they are, and where they break.

Errors are printed with these too, so nothing here needs an installed package.
"""

from __future__ import annotations

import codecs
import re
import shutil
import sys
import unicodedata
from io import TextIOWrapper
from typing import TextIO

_PLAIN_SIGNS = str.maketrans({
    "→": "->", "←": "<-", "↻": "o", "⇄": "<->", "✓": "+", "✗": "x", "·": "-", "»": ">", "►": ">",
    "▸": ">", "▼": "v", "▽": "v", "■": "#", "●": "o", "‖": "=", "÷": "/", "—": "-", "≤": "<=",
    "≥": ">=", "µ": "u", "μ": "u", "²": "^2", "³": "^3", "°": " deg ", "“": '"', "”": '"',
    "─": "-", "│": "|", "\N{MULTIPLICATION SIGN}": "x", "\N{EN DASH}": "-",
    "\N{LEFT SINGLE QUOTATION MARK}": "'", "\N{RIGHT SINGLE QUOTATION MARK}": "'"})
_WORD = re.compile(r"\s*(?:\S?kopt [a-z]+ \S+|\S+)")


def print_unencodable_as_ascii(stream: TextIOWrapper) -> None:
    """Have a stream write what its encoding lacks in ASCII: `≤` as `<=`, `é` as e, else `?`."""
    codecs.register_error("kopt-ascii", _as_ascii)
    stream.reconfigure(errors="kopt-ascii")


def _as_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start:error.end].translate(_PLAIN_SIGNS)
    return "".join(unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode() or "?"
                   for sign in signs), error.end


def print_text(text: str, to: TextIO | None = None, indent: int = 2) -> None:
    """Print a line, at a terminal broken between words; further lines are indented."""
    to = to or sys.stdout
    print("\n".join(wrapped(text, terminal_width(to), indent)), file=to, flush=True)


def wrapped(text: str, width: int | None, indent: int) -> list[str]:
    """Break a text into lines of at most `width` columns where its words allow it.

    A command such as `kopt approve 80fd0d` stays on one line, so that it can be copied.
    """
    lines, line = [], ""
    for word in re.findall(_WORD, text) if width else [text]:
        if line.strip() and columns(line + word) > (width or 0):
            lines.append(line)
            line = " " * indent + word.lstrip()
        else:
            line += word
    return [*lines, line]


def terminal_width(to: TextIO) -> int | None:
    """Return the width of a terminal, None for a file or a pipe."""
    return shutil.get_terminal_size().columns if to.isatty() else None


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
