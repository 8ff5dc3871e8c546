"""Which columns of a benchmark's table are its check and its metrics, from names and cells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.discovery.project import columns
from harness.benchmark.spec import check_rule, metric_units
from harness.benchmark.spec.command_target import Metric

ERRORS = frozenset(("err", "error", "errors", "mismatch", "mismatches", "wrong", "failed"))
WORDS = frozenset(("check", "correct", "correctness", "pass", "passed", "ok", "valid", "status",
                   "match", "matches"))
STATISTICS = ("median", "mean", "avg", "average", "min", "best", "max", "p", "std", "stdev")
"""Of one thing that was timed; the first that a table has is its metric."""
DIRECTIONS = frozenset(("fwd", "forward", "bwd", "backward", "time", "latency", "kernel", "total",
                        "step", "per", "wall", "gpu"))
REFERENCES = frozenset(("torch", "ref", "reference", "baseline", "naive", "cublas", "aten",
                        "golden", "expected"))


@dataclass(frozen=True, kw_only=True)
class GuessedColumns:
    """What a table's columns seem to be; what is empty could not be told."""

    check: str
    metrics: tuple[str, ...]
    implementations: tuple[str, ...]
    """Names of what the table has times of, the measured one first."""


def guess_columns(names: Sequence[str], cells: Mapping[str, Sequence[str]] | None = None,
          hint: str = "") -> GuessedColumns:
    """Guess from the names, and from cells where a run has shown them; `hint` is text, such as the
    kernel's path, that may name the implementation which is measured.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        if columns.cost_unit(name) and _positive(name, cells):
            groups.setdefault(whose(name), []).append(name)
    checks = [name for name in names if columns.words(name) & (ERRORS | WORDS)
              and not columns.cost_unit(name)]
    order = sorted(groups, key=lambda rest: _rank(rest, checks, hint))
    if not order:
        return GuessedColumns(check=_check(checks[:1], cells), metrics=(), implementations=())
    matching = [name for name in checks if whose(name) == order[0]]
    return GuessedColumns(check=_check(matching or [name for name in checks if not whose(name)]
                              or checks[:1], cells),
                 metrics=_metrics(groups[order[0]]),
                 implementations=tuple(" ".join(rest) for rest in order if rest))


def _rank(rest: tuple[str, ...], checks: Sequence[str], hint: str) -> tuple[bool, bool, bool]:
    """Return a key that puts first what a check belongs to, and what is no reference."""
    checked = any(whose(name) == rest for name in checks)
    hinted = bool(rest) and all(word in hint.casefold() for word in rest)
    return not hinted, not checked, bool(set(rest) & REFERENCES)


def whose(name: str) -> tuple[str, ...]:
    """Return the words of a column's name that say whose time or check it is."""
    unit = {word.casefold() for word in re.findall(r"[A-Za-z]+", metric_units.unit_in(name))}
    left_out = unit | ERRORS | WORDS | DIRECTIONS | set(STATISTICS) | {"s", "max", "abs", "rel"}
    return tuple(word for word in re.findall(r"[A-Za-z]+\d*", name.casefold())
                 if word not in left_out)


def _metrics(names: Sequence[str]) -> tuple[str, ...]:
    """Return one implementation's metrics: times rather than rates, one statistic of each."""
    times = [name for name in names if not metric_units.resolve(Metric(name=name)).is_rate]
    kept: dict[frozenset[str], str] = {}
    for name in times or names:
        said = columns.words(name)
        what = frozenset(said - set(STATISTICS))
        if what not in kept or _statistic(said) < _statistic(columns.words(kept[what])):
            kept[what] = name
    return tuple(kept.values())


def _statistic(said: set[str]) -> int:
    found = [at for at, word in enumerate(STATISTICS) if word in said]
    return found[0] if found else -1


def _positive(name: str, cells: Mapping[str, Sequence[str]] | None) -> bool:
    numbers = [check_rule.number(cell) for cell in cells.get(name, ())] if cells else [1.0]
    return all(number is not None and number > 0 for number in numbers)


def _check(names: Sequence[str], cells: Mapping[str, Sequence[str]] | None) -> str:
    """Return a check in one line; the column alone where its rule cannot be told."""
    if not names:
        return ""
    name = names[0]
    seen = set(cells.get(name, ())) if cells else set()
    numbers = {check_rule.number(cell) for cell in seen}
    if not seen:
        return f"{name} == 0" if columns.words(name) & ERRORS else name
    if numbers == {0.0} and columns.words(name) & ERRORS:
        return f"{name} == 0"
    if numbers == {1.0}:
        return f"{name} == 1"
    return f"{name} == {next(iter(seen))}" if len(seen) == 1 and None in numbers else name
