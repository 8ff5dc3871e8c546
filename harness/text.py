"""Texts that come from candidates, workers and tools are data: made harmless before they travel."""

from __future__ import annotations

import re

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_]?)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def plain(text: str, limit: int = 2000) -> str:
    """Return `text` without escape sequences and control characters, at most `limit` long."""
    cleaned = _CONTROL.sub("", _ESCAPES.sub("", text.replace("\r", "\n")))
    return cleaned if len(cleaned) <= limit else cleaned[: limit - 1] + "…"
