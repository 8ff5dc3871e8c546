"""Finds the whole-number constants of a C++ source, which a launch may use."""

from __future__ import annotations

import re

from harness.errors import InputError
from harness.formats.expression import whole

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_CONSTANT = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(?P<macro>\w+)[ \t]+(?P<body>[^\n]+)$"
    r"|\b(?:constexpr|const)\b[\w \t]*?\b(?P<name>\w+)[ \t]*=[ \t]*(?P<value>[^;,{}\n]+)[;,]",
    re.MULTILINE)
_SUFFIX = re.compile(r"\b(\d+)[uUlL]+\b")
_SHIFT = re.compile(r"(?<![\w.])(\d+)\s*<<\s*(\d{1,2})\b")


def find(source: str) -> dict[str, int]:
    """Return the constants whose values are whole-number expressions, also of earlier constants."""
    constants: dict[str, int] = {}
    for match in _CONSTANT.finditer(_COMMENT.sub(" ", source)):
        name, text = match["macro"] or match["name"], match["body"] or match["value"]
        try:
            constants[name] = whole(python_expression(text), constants)
        except InputError:
            continue
    return constants


def python_expression(text: str) -> str:
    """Translate a C expression to a task file's, in which C's `/` of integers is `//`.

    Shifted numbers become numbers.
    """
    text = _SUFFIX.sub(r"\1", text.strip()).replace("/", "//")
    return _SHIFT.sub(lambda match: str(int(match[1]) << int(match[2])), text)
