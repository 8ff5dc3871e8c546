"""Guess a benchmark table's check and metrics from the names and cells of its columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.discovery.project import columns
from engine.discovery.project.columns import WORDS
from harness.benchmark.spec import metric_units, table_rules
from harness.benchmark.spec.command_target import Metric

CHECKS = WORDS["errors"] | WORDS["checks"]
STATISTICS = ("median", "mean", "avg", "average", "min", "best", "max", "p", "std", "stdev")
"""Statistics of one timing; the first of these that a table has is its metric."""


@dataclass(frozen=True, kw_only=True)
class GuessedColumns:
    """The likely roles of a table's columns; empty where nothing fits."""

    check: str
    metrics: tuple[str, ...]
    implementations: tuple[str, ...]
    """Implementations that the table has times of, the measured one first."""


def guess_columns(names: Sequence[str], cells: Mapping[str, Sequence[str]] | None = None,
          hint: str = "") -> GuessedColumns:
    """Guess from the names, and from the cells of a run if there was one.

    `hint` is text, such as the kernel's path, that may name the measured implementation.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        if metric_units.unit_in(name) and _is_positive(name, cells):
            groups.setdefault(implementation_of(name), []).append(name)
    checks = [name for name in names if columns.name_words(name) & CHECKS
              and not metric_units.unit_in(name)]
    order = sorted(groups, key=lambda rest: _rank(rest, checks, hint))
    if not order:
        return GuessedColumns(check=_check(checks[:1], cells), metrics=(), implementations=())
    matching = [name for name in checks if implementation_of(name) == order[0]]
    return GuessedColumns(
        check=_check(
            matching or [name for name in checks if not implementation_of(name)] or checks[:1],
            cells),
        metrics=_metrics(groups[order[0]]),
        implementations=tuple(" ".join(rest) for rest in order if rest))


def _rank(rest: tuple[str, ...], checks: Sequence[str], hint: str) -> tuple[bool, bool, bool]:
    """Return a sort key: hinted implementations first, then checked ones, references last."""
    is_checked = any(implementation_of(name) == rest for name in checks)
    is_hinted = bool(rest) and all(word in hint.casefold() for word in rest)
    return not is_hinted, not is_checked, bool(set(rest) & WORDS["references"])


def implementation_of(name: str) -> tuple[str, ...]:
    """Return the words of a column's name that say which implementation it is about."""
    unit = {word.casefold() for word in re.findall(r"[A-Za-z]+", metric_units.unit_in(name))}
    other_words = unit | CHECKS | WORDS["directions"] | {*STATISTICS, "s", "max", "abs", "rel"}
    return tuple(word for word in re.findall(r"[A-Za-z]+\d*", name.casefold())
                 if word not in other_words)


def _metrics(names: Sequence[str]) -> tuple[str, ...]:
    """Return one implementation's metrics: times rather than rates, one statistic of each."""
    times = [name for name in names if not metric_units.resolve(Metric(name=name)).is_rate]
    kept: dict[frozenset[str], str] = {}
    for name in times or names:
        name_words = columns.name_words(name)
        what = frozenset(name_words - set(STATISTICS))
        if what not in kept or _statistic(name_words) < _statistic(columns.name_words(kept[what])):
            kept[what] = name
    return tuple(kept.values())


def _statistic(name_words: set[str]) -> int:
    ranks = [at for at, word in enumerate(STATISTICS) if word in name_words]
    return ranks[0] if ranks else -1


def _is_positive(name: str, cells: Mapping[str, Sequence[str]] | None) -> bool:
    numbers = [table_rules.number(cell) for cell in cells.get(name, ())] if cells else [1.0]
    return all(number is not None and number > 0 for number in numbers)


def _check(names: Sequence[str], cells: Mapping[str, Sequence[str]] | None) -> str:
    """Return a check in one line; the column alone if its rule is unclear."""
    if not names:
        return ""
    name = names[0]
    values = set(cells.get(name, ())) if cells else set()
    numbers = {table_rules.number(cell) for cell in values}
    if not values:
        return f"{name} == 0" if columns.name_words(name) & WORDS["errors"] else name
    if numbers == {0.0} and columns.name_words(name) & WORDS["errors"]:
        return f"{name} == 0"
    if numbers == {1.0}:
        return f"{name} == 1"
    return f"{name} == {next(iter(values))}" if len(values) == 1 and None in numbers else name
