"""Classify the columns of a benchmark's table: launch path, size, cost, or no part of the config.

The cells and the words of its name decide a column's role. A column that is not part of a row's
configuration is left out with a reason. The check and the metrics are guessed in the same way.
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.benchmark.spec import metric_units
from harness.benchmark.spec.command_target import Metric
from harness.benchmark.spec.table_rules import PASS_WORDS
from harness.call_trace import weights

Role = Literal["path", "size", "cost", "none"]
"""path: chooses a launch path. size: of the work. cost: a time or rate that is not a metric."""

WORDS = {kind: frozenset(words.split()) for kind, words in tomllib.loads(
    Path(__file__).with_name("column_words.toml").read_text(encoding="utf-8")).items()}
"""Words in the names of columns and in their cells, by meaning."""
WIDE = 8.0
"""Numbers whose largest is this many times the smallest can be sizes, whatever their name."""
LEVELS = 12
"""Most different values of a column whose values can each be a class."""
CHECKS = WORDS["errors"] | WORDS["checks"] | WORDS["fingerprints"]
STATISTICS = ("median", "mean", "avg", "average", "min", "best", "max", "p", "std", "stdev")
"""Statistics of a timing, in order of preference; a column that names none is preferred to all."""
UNIQUE = "different in every row"
_WORD = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """A column; `numbers` are its cells if all are numbers, `why` is the reason to leave it out."""

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
        """Whether kernels are often specialised by such a column, going by its name."""
        return bool(name_words(self.name) & WORDS["path"])


def name_words(name: str) -> set[str]:
    """Return the words of a column's name in lower case."""
    split = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return {word.casefold() for word in _WORD.findall(split)}


def classify_column(name: str, cells: Sequence[str]) -> TableColumn:
    """Return the column with its role."""
    values = [weights.number(cell) for cell in cells]
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
    are_integers = all(value.is_integer() for value in distinct)
    if _numbers_rows(words, numbers):
        return "none", "the number of the row"
    if not are_integers and len(distinct) > len(numbers) / 2 and len(numbers) > 3:
        return "none", "a result: fractions that hardly repeat"
    is_wide = distinct[0] > 0 and distinct[-1] / distinct[0] >= WIDE
    if is_wide and (len(distinct) > 3 or words & WORDS["sizes"]) \
            and not (words & WORDS["path"] and len(distinct) <= LEVELS):
        return "size", ""
    if len(distinct) == len(numbers) > 3 and not words & WORDS["path"]:
        is_spread = distinct[0] > 0 and distinct[-1] / distinct[0] >= 2
        return ("size", "") if is_spread else ("none", UNIQUE)
    return "path", ""


def _numbers_rows(words: set[str], numbers: Sequence[float]) -> bool:
    """Return whether a column numbers the rows in order."""
    steps = {after - before for before, after in itertools.pairwise(numbers)}
    return steps == {1.0} and (bool(words & WORDS["numbers"])
                               or (numbers[0] == 0 and len(numbers) > 7))


def cost_of(name: str, numbers: Sequence[float]) -> tuple[float, ...]:
    """Return a column of times or rates as costs; empty if a number is not a valid cost."""
    try:
        metric = metric_units.resolve(Metric(name=name))
        return tuple(metric.cost(number) for number in numbers)
    except (ValueError, OverflowError, ZeroDivisionError):
        return ()


@dataclass(frozen=True, kw_only=True)
class GuessedColumns:
    """The likely roles of a table's columns; empty where nothing fits."""

    check: str
    metrics: tuple[str, ...]
    implementations: tuple[str, ...]
    """Implementations that the table has times of, the measured one first."""
    rivals: tuple[str, ...] = ()
    """The metrics of all implementations that rank as high as the first, if it is not alone."""


def guess_columns(names: Sequence[str], cells: Mapping[str, Sequence[str]] | None = None,
                  hint: str = "") -> GuessedColumns:
    """Guess the roles of columns from their names, and from the cells of a run if there was one.

    `hint` is text, such as the kernel's path, that may name the measured implementation.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        if metric_units.unit_in(name) and _is_positive(name, cells):
            groups.setdefault(implementation_of(name), []).append(name)
    checks = sorted((name for name in names if name_words(name) & CHECKS
                     and not metric_units.unit_in(name) and _is_check(name, cells)),
                    key=lambda name: not name_words(name) & WORDS["checks"])  # errors need a limit
    ranks = {rest: _rank(rest, checks, hint) for rest in groups}
    order = sorted(groups, key=ranks.__getitem__)
    if not order:
        return GuessedColumns(check=_check(checks[:1], cells), metrics=(), implementations=())
    matching = [name for name in checks if implementation_of(name) == order[0]]
    return GuessedColumns(
        check=_check(
            matching or [name for name in checks if not implementation_of(name)] or checks[:1],
            cells),
        metrics=_metrics(groups[order[0]]),
        rivals=tuple(name for rest in order if ranks[rest] == ranks[order[0]]
                     for name in _metrics(groups[rest])) if _has_rival(order, ranks) else (),
        implementations=tuple(" ".join(rest) for rest in order if rest))


def _rank(rest: tuple[str, ...], checks: Sequence[str], hint: str) -> tuple[bool, bool, bool]:
    """Return a sort key: hinted implementations first, then checked ones, references last."""
    is_checked = any(implementation_of(name) == rest for name in checks)
    is_hinted = bool(rest) and all(word in hint.casefold() for word in rest)
    return not is_hinted, not is_checked, bool(set(rest) & WORDS["references"])


def _has_rival(order: Sequence[tuple[str, ...]],
               ranks: Mapping[tuple[str, ...], tuple[bool, bool, bool]]) -> bool:
    return len(order) > 1 and ranks[order[0]] == ranks[order[1]]


def _is_check(name: str, cells: Mapping[str, Sequence[str]] | None) -> bool:
    """Return whether a column can be a check: a checksum only if a run gave one value."""
    values = set((cells or {}).get(name, ()))
    return not name_words(name) & WORDS["fingerprints"] or len(values) == 1


def implementation_of(name: str) -> tuple[str, ...]:
    """Return the words of a column's name that say which implementation it is about."""
    unit = {word.casefold() for word in re.findall(r"[A-Za-z]+", metric_units.unit_in(name))}
    other_words = unit | CHECKS | WORDS["directions"] | {*STATISTICS, "s", "max", "abs", "rel"}
    return tuple(word for word in re.findall(r"[A-Za-z]+\d*", name.casefold())
                 if word not in other_words)


def _metrics(names: Sequence[str]) -> tuple[str, ...]:
    """Return one implementation's metrics: times rather than rates, one statistic per timing."""
    times = [name for name in names if not metric_units.resolve(Metric(name=name)).is_rate]
    kept: dict[frozenset[str], str] = {}
    for name in times or names:
        words_of_name = name_words(name)
        timing = frozenset(words_of_name - set(STATISTICS))
        if timing not in kept or _statistic(words_of_name) < _statistic(name_words(kept[timing])):
            kept[timing] = name
    return tuple(kept.values())


def _statistic(words: set[str]) -> int:
    ranks = [at for at, word in enumerate(STATISTICS) if word in words]
    return ranks[0] if ranks else -1


def _is_positive(name: str, cells: Mapping[str, Sequence[str]] | None) -> bool:
    numbers = [weights.number(cell) for cell in cells.get(name, ())] if cells else [1.0]
    return all(number is not None and number > 0 for number in numbers)


def _check(names: Sequence[str], cells: Mapping[str, Sequence[str]] | None) -> str:
    """Return a check in one line; the column alone if its rule is unclear.

    A word that all rows have is the rule only if it means success: all rows may be wrong.
    """
    if not names:
        return ""
    name = names[0]
    values = set(cells.get(name, ())) if cells else set()
    numbers = {weights.number(cell) for cell in values}
    if not values:
        return f"{name} == 0" if name_words(name) & WORDS["errors"] else name
    if numbers == {0.0} and name_words(name) & WORDS["errors"]:
        return f"{name} == 0"
    if name_words(name) & WORDS["fingerprints"]:
        return f"{name} == {next(iter(values))}"
    if numbers == {1.0} and not name_words(name) & WORDS["errors"]:
        return f"{name} == 1"
    word = next(iter(values))
    return f"{name} == {word}" if len(values) == 1 and word.casefold() in PASS_WORDS else name
