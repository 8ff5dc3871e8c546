"""What the correctness column must hold: `== 0`, `<= 1e-3`, `PASS`, or `PASS|OK`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from harness.benchmark.spec.command_target import CheckColumn

WORDS = ("pass", "passed", "ok", "true", "yes", "success", "correct")
"""What passes where a check names its column only."""
ORDERED: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
_SIGN = re.compile(r"\s*(==|!=|<=|>=|<|>|=)\s*(.*?)\s*", re.DOTALL)
_TEXT = re.compile(r"\s*([^=!<>]+?)\s*((?:==|!=|<=|>=|<|>|=).*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class CheckRule:
    """A rule that was read; `told` is how it is worded."""

    told: str
    sign: str
    words: tuple[str, ...] = ()
    number: float | None = None

    def passes(self, cell: str) -> bool:
        """Tell whether a cell passes; what is empty or not a number never does."""
        value = number(cell)
        if not cell.strip() or (value is not None and math.isnan(value)):
            return False
        if self.sign in ORDERED:
            assert self.number is not None
            return value is not None and math.isfinite(value) and \
                ORDERED[self.sign](value, self.number)
        if self.number is not None and value is not None:
            same = value == self.number
        else:
            same = cell.strip().casefold() in self.words
        return same is (self.sign == "==")


def parse(text: str) -> CheckRule:
    """Read a rule. Raises ValueError in a few words that go after the rule itself."""
    if not text.strip():
        return CheckRule(told=f"one of {', '.join(WORDS)}", sign="==", words=WORDS)
    signed = _SIGN.fullmatch(text)
    sign, rest = ("==", text.strip()) if signed is None else (
        signed[1].replace("=", "==") if signed[1] == "=" else signed[1], signed[2].strip("'\" "))
    if not rest:
        raise ValueError("compares with nothing")
    value = number(rest)
    if value is not None and math.isnan(value):
        raise ValueError("compares with what is not a number")
    if sign in ORDERED:
        if value is None:
            raise ValueError("needs a number")
        return CheckRule(told=f"{sign} {rest}", sign=sign, number=value)
    words = tuple(word.strip().casefold() for word in rest.split("|") if word.strip())
    return CheckRule(told=f"{sign} {rest}", sign=sign, words=words, number=value)


def check_in(text: str) -> CheckColumn:
    """Return a check that is written in one line, `err == 0`, or a column's name alone."""
    written = _TEXT.fullmatch(text)
    if written is None:
        return CheckColumn(column=text.strip())
    return CheckColumn(column=written[1], rule=written[2].strip())


def number(cell: str) -> float | None:
    """Return a cell as a number, NaN and infinities among them; None where it is a word."""
    text = cell.strip()
    if not text or "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None
