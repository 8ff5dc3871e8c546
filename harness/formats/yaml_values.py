"""Scalars of YAML by 1.2's core schema: `1e-6` is a number, `no` and `10:30` are text."""

from __future__ import annotations

import re
from typing import Any

MAX_DEPTH = 20

Key = tuple[str | int, ...]
"""The place of a value: the keys and indices that lead to it from the top."""

INT = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}


def scalar(text: str) -> Any:
    """Return the value of a plain scalar: None, a boolean, a number or text."""
    if text in _WORDS:
        return _WORDS[text]
    if INT.fullmatch(text):
        return int(text, 0) if text.startswith(("0x", "0o")) else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
