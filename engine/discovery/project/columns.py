"""Classify the columns of a benchmark's table: launch path, size, cost, or no part of the config.

The cells decide first, and the name where they leave it open. A column that is no part of a row's
configuration is left out with a reason.
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.benchmark.spec import metric_units, table_rules
from harness.benchmark.spec.command_target import Metric

Role = Literal["path", "size", "cost", "none"]
"""What chooses a launch path, a size of the work, a time or rate that is no metric, or none."""

WORDS = {kind: frozenset(words.split()) for kind, words in tomllib.loads(
    Path(__file__).with_name("column_words.toml").read_text(encoding="utf-8")).items()}
"""Words by what they say of a column."""
WIDE = 8.0
"""Ratio of largest to smallest from which numbers are sizes under any name."""
LEVELS = 12
"""Most values of a column that can each be a class."""
UNIQUE = "different in every row"
_WORD = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """One column; `numbers` if every cell is one, `why` it is left out."""

    name: str
    role: Role
    cells: tuple[str, ...]
    numbers: tuple[float, ...] = ()
    why: str = ""

    @property
    def levels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.cells))

    @property
    def preferred(self) -> bool:
        return bool(name_words(self.name) & WORDS["path"])


def name_words(name: str) -> set[str]:
    """Return the words of a column's name in lower case."""
    split = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return {word.casefold() for word in _WORD.findall(split)}


def classify_column(name: str, cells: Sequence[str]) -> TableColumn:
    """Return the column with its role."""
    values = [table_rules.number(cell) for cell in cells]
    numbers = tuple(value for value in values if value is not None and math.isfinite(value))
    numbers = numbers if len(numbers) == len(cells) else ()
    role, why = _role(name, cells, numbers)
    return TableColumn(name=name, role=role, cells=tuple(cells), numbers=numbers, why=why)


def _role(name: str, cells: Sequence[str], numbers: Sequence[float]) -> tuple[Role, str]:
    words = name_words(name)
    if len(set(numbers or cells)) == 1:
        return "none", "the same in all rows"
    if metric_units.unit_in(name):
        return ("cost" if numbers and min(numbers) > 0 else "none"), "a time or a rate"
    if words & WORDS["results"]:
        return "none", "a result"
    if words & WORDS["passing"]:
        return "none", "about the run, not the row"
    return _numeric(words, numbers) if numbers else _text(cells)


def _text(cells: Sequence[str]) -> tuple[Role, str]:
    distinct = set(cells)
    if len(distinct) == len(cells) > 2:
        return "none", UNIQUE
    return ("path", "") if len(distinct) <= LEVELS else \
        ("none", f"{len(distinct)} different texts")


def _numeric(words: set[str], numbers: Sequence[float]) -> tuple[Role, str]:
    distinct = sorted(set(numbers))
    whole = all(value.is_integer() for value in distinct)
    if _counts(words, numbers):
        return "none", "the number of the row"
    if not whole and len(distinct) > len(numbers) / 2 and len(numbers) > 3:
        return "none", "a result: fractions that hardly repeat"
    wide = distinct[0] > 0 and distinct[-1] / distinct[0] >= WIDE
    if wide and (len(distinct) > 3 or words & WORDS["sizes"]) \
            and not (words & WORDS["path"] and len(distinct) <= LEVELS):
        return "size", ""
    if len(distinct) == len(numbers) > 3 and not words & WORDS["path"]:
        spread = distinct[0] > 0 and distinct[-1] / distinct[0] >= 2
        return ("size", "") if spread else ("none", UNIQUE)
    return "path", ""


def _counts(named: set[str], numbers: Sequence[float]) -> bool:
    """Return whether a column numbers the rows in order."""
    steps = {after - before for before, after in itertools.pairwise(numbers)}
    return steps == {1.0} and (bool(named & WORDS["numbers"])
                               or (numbers[0] == 0 and len(numbers) > 7))


def cost_of(name: str, numbers: Sequence[float]) -> tuple[float, ...]:
    """Return a column of times or rates as costs; empty if a number is no valid cost."""
    try:
        metric = metric_units.resolve(Metric(name=name))
        return tuple(metric.cost(number) for number in numbers)
    except (ValueError, OverflowError, ZeroDivisionError):
        return ()
