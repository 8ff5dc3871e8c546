"""The rule of the correctness column: `== 0`, `<= 1e-3`, `PASS`, or `PASS|OK`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from harness.benchmark.spec.command_target import CheckColumn

PASS_WORDS = ("pass", "passed", "ok", "true", "yes", "success", "correct")
"""The cells that pass where a check names only its column."""
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
_RULE = re.compile(r"\s*(==|!=|<=|>=|<|>|=)\s*(.*?)\s*", re.DOTALL)
_COLUMN_AND_RULE = re.compile(r"\s*([^=!<>]+?)\s*((?:==|!=|<=|>=|<|>|=).*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class CheckRule:
    """A parsed rule; `text` words it for messages."""

    text: str
    sign: str
    words: tuple[str, ...] = ()
    number: float | None = None

    def passes(self, cell: str) -> bool:
        """Return whether a cell passes; an empty cell and NaN never do."""
        value = number(cell)
        if not cell.strip() or (value is not None and math.isnan(value)):
            return False
        if self.sign in COMPARISONS:
            assert self.number is not None
            return value is not None and math.isfinite(value) and \
                COMPARISONS[self.sign](value, self.number)
        if self.number is not None and value is not None:
            is_equal = value == self.number
        else:
            is_equal = cell.strip().casefold() in self.words
        return is_equal is (self.sign == "==")


def parse(text: str) -> CheckRule:
    """Parse a rule. Raises ValueError in a few words that follow the rule in a message."""
    if not text.strip():
        return CheckRule(text=f"one of {', '.join(PASS_WORDS)}", sign="==", words=PASS_WORDS)
    match = _RULE.fullmatch(text)
    sign, operand = ("==", text.strip()) if match is None else (
        "==" if match[1] == "=" else match[1], match[2].strip("'\" "))
    if not operand:
        raise ValueError("compares with nothing")
    value = number(operand)
    if value is not None and math.isnan(value):
        raise ValueError("compares with what is not a number")
    if sign in COMPARISONS:
        if value is None:
            raise ValueError("needs a number")
        return CheckRule(text=f"{sign} {operand}", sign=sign, number=value)
    words = tuple(word.strip().casefold() for word in operand.split("|") if word.strip())
    return CheckRule(text=f"{sign} {operand}", sign=sign, words=words, number=value)


def check_in(text: str) -> CheckColumn:
    """Return the check that one line states: `err == 0`, or a column's name alone."""
    match = _COLUMN_AND_RULE.fullmatch(text)
    if match is None:
        return CheckColumn(column=text.strip())
    return CheckColumn(column=match[1], rule=match[2].strip())


def number(cell: str) -> float | None:
    """Return a cell's number, which may be NaN or infinite; None if the cell holds a word."""
    text = cell.strip()
    if not text or "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None
