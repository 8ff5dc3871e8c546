"""Find the columns that identify a benchmark's rows: those whose values all runs share.

A config column is not a metric or check, has no unit of a time or rate in its name, and has the
same values in every run of a side, unlike dates. A column that the target names is always a config
column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.benchmark.runs.result_table import MOST_NAMED, BenchmarkFault, ResultTable
from harness.benchmark.spec import metric_units, table_rules
from harness.benchmark.spec.command_target import CommandTarget
from harness.call_trace.weights import label
from harness.formats.quantities import listed

RowKey = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ConfigColumns:
    """The config columns, in the file's order; `unsteady` ones vary over the candidate's runs."""

    columns: tuple[str, ...]
    unsteady: tuple[str, ...] = ()


def find_config_columns(target: CommandTarget, incumbent: Sequence[ResultTable],
                        candidate: Sequence[ResultTable]) -> ConfigColumns:
    """Return the config columns of all runs of both sides; each side has at least one run.

    A column that is unsteady only for the candidate is left out and reported, if rows differ
    without it. Raises BenchmarkFault if the candidate's file lacks a config column.
    """
    required = table_rules.required_columns(target)
    left_out = {target.check.column, *target.ignore, *(m.name for m in target.metrics)}
    steady = [name for name in incumbent[0].columns if name not in left_out
              and (name in required or (not _is_measured(name) and _is_steady(name, incumbent)))]
    for name in steady:
        if any(name not in table.columns for table in candidate):
            raise BenchmarkFault("missing-column", f"the column {name!r} is missing",
                                 fix=f"if it does not matter, set target.ignore: [{name}]")
    unsteady = [name for name in steady
                if name not in required and not _is_steady(name, candidate)]
    remaining = [name for name in steady if name not in unsteady]
    rows = range(len(incumbent[0].rows))
    if not unsteady or len({incumbent[0].cells(row, remaining) for row in rows}) < len(rows):
        return ConfigColumns(columns=tuple(steady))
    return ConfigColumns(columns=tuple(remaining), unsteady=tuple(unsteady))


def _is_measured(name: str) -> bool:
    """Return whether a name has a unit; `time_s` has one, `filter_s` is rather a dimension."""
    unit = metric_units.unit_in(name)
    return bool(unit) and (unit.casefold() != "s" or metric_units.direction_in(name) == "lower")


def _is_steady(name: str, tables: Sequence[ResultTable]) -> bool:
    if any(name not in table.columns for table in tables):
        return False
    first = sorted(tables[0].column(name))
    return all(sorted(table.column(name)) == first for table in tables[1:])


def rows_by_key(table: ResultTable, columns: Sequence[str]) -> Mapping[RowKey, int]:
    """Return row numbers by configuration. Raises BenchmarkFault if two rows share one."""
    rows: dict[RowKey, int] = {}
    for number in range(len(table.rows)):
        key = table.cells(number, columns)
        if key in rows:
            what = (f"rows {rows[key] + 1} and {number + 1} have the same configuration: "
                    f"{label(columns, key) or 'no column distinguishes them'}")
            raise BenchmarkFault(
                "duplicate-rows", what, fix="write a column that distinguishes them, such as the "
                "shape, or name an existing one in target.configs")
        rows[key] = number
    return rows


def matching_rows(expected: Iterable[RowKey], table: ResultTable, columns: Sequence[str],
                  *, whose: str = "the incumbent") -> Mapping[RowKey, int]:
    """Return a table's row numbers by configuration. Raises BenchmarkFault unless as expected."""
    rows = rows_by_key(table, columns)
    expect_same_rows(expected, rows, columns, whose=whose)
    return rows


def expect_same_rows(expected: Iterable[RowKey], actual: Iterable[RowKey], columns: Sequence[str],
                     *, whose: str) -> None:
    """Raise BenchmarkFault, which names rows that differ, unless both have the same rows."""
    expected, actual = list(expected), list(actual)
    if set(expected) == set(actual):
        return
    missing = [key for key in expected if key not in set(actual)]
    extra = [key for key in actual if key not in set(expected)]
    differences = [f"{word}: {listed([label(columns, key) or '?' for key in keys], MOST_NAMED)}"
                   for word, keys in (("missing", missing), ("new", extra)) if keys]
    raise BenchmarkFault("changed-rows", f"has {len(actual)} rows, {whose} has {len(expected)}; "
                                         f"{'; '.join(differences)}")


def expect_same_row_count(expected: ResultTable, actual: ResultTable, whose: str) -> None:
    """Raise BenchmarkFault unless both have as many rows; needs no config columns."""
    if len(expected.rows) != len(actual.rows):
        raise BenchmarkFault(
            "changed-rows", f"has {len(actual.rows)} rows, {whose} has {len(expected.rows)}")


def row_labels(keys: Sequence[RowKey], columns: Sequence[str]) -> dict[RowKey, str]:
    """Return each row's name: the columns in which rows differ, or all columns of a single row."""
    differ = [place for place in range(len(columns)) if len({key[place] for key in keys}) > 1]
    places = differ or list(range(len(columns)))
    named = [columns[place] for place in places]
    return {key: label(named, [key[place] for place in places]) or "all" for key in keys}
