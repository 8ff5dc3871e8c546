"""Which columns tell a benchmark's rows apart: those found in the file that stay as they are.

A column is of the configuration if it is neither a metric nor the check, has no unit of a time or
rate in its name, and holds the same values in every run of a side: dates and temperatures drop out
by themselves. One that the target names is of it whatever its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.benchmark.runs.result_table import NAMED, BenchmarkFault, ResultTable
from harness.benchmark.spec import metric_units, row_classes
from harness.benchmark.spec.command_target import CommandTarget

RowKey = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ConfigColumns:
    """The config columns in the file's order; `wavering` are steady for the incumbent alone."""

    columns: tuple[str, ...]
    wavering: tuple[str, ...] = ()


def find_config_columns(target: CommandTarget, incumbent: Sequence[ResultTable],
         candidate: Sequence[ResultTable]) -> ConfigColumns:
    """Return the config columns, from all runs of both sides so far; each has one at least.

    A column that the incumbent holds steady and the candidate does not is left out, and told, as
    long as the incumbent's rows are told apart without it. Raises Fault where the candidate's file
    lacks one.
    """
    named = row_classes.required_columns(target)
    left_out = {target.check.column, *target.ignore, *(m.name for m in target.metrics)}
    steady = [name for name in incumbent[0].columns if name not in left_out
              and (name in named or (not _measured(name) and _steady(name, incumbent)))]
    for name in steady:
        if any(name not in table.columns for table in candidate):
            raise BenchmarkFault("missing-column", f"the column {name!r} is gone",
                        fix=f"if it says nothing: target.ignore: [{name}]")
    wavering = [name for name in steady
                if name not in named and not _steady(name, candidate)]
    left = [name for name in steady if name not in wavering]
    if not wavering or not _apart(incumbent[0], left):
        return ConfigColumns(columns=tuple(steady))
    return ConfigColumns(columns=tuple(left), wavering=tuple(wavering))


def _apart(table: ResultTable, columns: Sequence[str]) -> bool:
    keys = {table.cells(row, columns) for row in range(len(table.rows))}
    return len(keys) == len(table.rows)


def _measured(name: str) -> bool:
    """Tell whether a name has a unit; `filter_s` is rather a dimension, `time_s` is not."""
    unit = metric_units.unit_in(name)
    return bool(unit) and (unit.casefold() != "s" or metric_units.direction_in(name) == "lower")


def _steady(name: str, tables: Sequence[ResultTable]) -> bool:
    if any(name not in table.columns for table in tables):
        return False
    first = sorted(tables[0].column(name))
    return all(sorted(table.column(name)) == first for table in tables[1:])


def keyed(table: ResultTable, columns: Sequence[str]) -> Mapping[RowKey, int]:
    """Return the rows by their configuration. Raises Fault where two rows have the same."""
    rows: dict[RowKey, int] = {}
    for number in range(len(table.rows)):
        key = table.cells(number, columns)
        if key in rows:
            raise BenchmarkFault(
                "duplicate-rows",
                f"rows {rows[key] + 1} and {number + 1} are of the same "
                f"configuration: {label(key, columns) or 'no column tells them apart'}",
                fix="write a column that tells them apart, such as the shape, or name one "
                "that is there: target.configs",
            )
        rows[key] = number
    return rows


def expect_same(wanted: Iterable[RowKey], got: Iterable[RowKey], columns: Sequence[str], *,
                whose: str = "the incumbent") -> None:
    """Raise Fault unless both have the same rows, with the first that differ."""
    expected, seen = list(wanted), list(got)
    if set(expected) == set(seen):
        return
    missing = [key for key in expected if key not in set(seen)]
    extra = [key for key in seen if key not in set(expected)]
    told = [f"{words}: {_some(keys, columns)}"
            for words, keys in (("missing", missing), ("new", extra)) if keys]
    raise BenchmarkFault("changed-rows", f"has {len(seen)} rows, {whose} has {len(expected)}; "
                f"{'; '.join(told)}")


def expect_as_many(expected: ResultTable, got: ResultTable, whose: str) -> None:
    """Raise Fault unless both have as many rows: what can be said before columns are known."""
    if len(expected.rows) != len(got.rows):
        raise BenchmarkFault(
            "changed-rows", f"has {len(got.rows)} rows, {whose} has {len(expected.rows)}"
        )


def labels(keys: Sequence[RowKey], columns: Sequence[str]) -> dict[RowKey, str]:
    """Return what to call each row: the columns in which they differ, or all of a single one."""
    differ = [place for place in range(len(columns)) if len({key[place] for key in keys}) > 1]
    places = differ or list(range(len(columns)))
    named = [columns[place] for place in places]
    return {key: label([key[place] for place in places], named) or "all" for key in keys}


def label(key: Sequence[str], columns: Sequence[str]) -> str:
    """Return `m=128 n=64`."""
    return " ".join(f"{name}={cell}" for name, cell in zip(columns, key, strict=True))


def _some(keys: Sequence[RowKey], columns: Sequence[str]) -> str:
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return ", ".join(label(key, columns) or "?" for key in keys[:NAMED]) + more
