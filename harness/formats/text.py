"""Clean texts of candidates, workers and tools, which are untrusted data."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_]?)")
_CONTROL = re.compile(  # and invisible characters, line breaks, changes of text direction
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069"
    r"\ud800-\udfff\ufeff\U000e0000-\U000e007f]")


def plain(text: str, limit: int = 2000) -> str:
    """Return a text without escape sequences and control characters, at most `limit` long."""
    cleaned = text
    if not text.replace("\n", "").replace("\t", "").isprintable():  # 10 times faster than searching
        cleaned = _CONTROL.sub("", _ESCAPES.sub("", text.replace("\r", "\n")))
    return cleaned if len(cleaned) <= limit else cleaned[: limit - 1] + "…"


def one_line(text: str, limit: int = 2000) -> str:
    """Return a plain text of at most `limit` characters as one line."""
    return " ".join(plain(text, limit).split())


def quoted(text: str, limit: int = 2000) -> str:
    """Return what a worker or model says in quotation marks, as it is not kopt's word; "" stays."""
    inner = one_line(text, limit - 2).replace('"', "'")
    return f'"{inner}"' if inner else ""


def read_text(path: str | Path) -> str:
    """Return a file's text, empty if it cannot be read."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def words(text: str) -> frozenset[str]:
    """Return the set of a text's words."""
    return frozenset(text.split())


def suggest(name: str, known: Iterable[str], *, listed: bool = False) -> str:
    """Return "did you mean 'x'?", or all names if they are few and not yet `listed`, or ""."""
    names = list(known)
    folded = {original.lower(): original for original in names}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    if close:
        return f"did you mean {folded[close[0]]!r}?"
    return "" if listed or not 0 < len(names) <= 12 else f"known: {', '.join(names)}"
