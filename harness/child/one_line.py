"""Formats an exception as one line, for a person who reads a verdict."""

from __future__ import annotations

import os
import traceback


def one_line(error: BaseException) -> str:
    """Return the error's type and first line, and the last line of its root cause."""
    lines = _lines(error)
    kind, colon, rest = lines[0].partition(": ")
    first = kind.rpartition(".")[2] + colon + rest
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    last = lines[-1] if root is error else _lines(root)[-1]
    return first if last == lines[0] else f"{first} … {last}"


def line_in(path: str, error: BaseException) -> str:
    """Return ` (FILE:LINE)`, the line of a file in which an error was raised, "" if in none."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__)
             if path and frame.f_code.co_filename == path]
    return f" ({os.path.basename(path)}:{lines[-1]})" if lines else ""


def _lines(error: BaseException) -> list[str]:
    text = f"{type(error).__name__}: {error}" if isinstance(error, SyntaxError) else \
        "".join(traceback.format_exception_only(type(error), error))
    return [line.strip() for line in text.splitlines()
            if any(letter.isalnum() for letter in line)] or [type(error).__name__]
