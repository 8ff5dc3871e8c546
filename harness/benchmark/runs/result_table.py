"""Judge a benchmark's table: check each row, and turn its metrics into costs.

Everything that can be wrong with a run has a kind of its own and a message of one line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.benchmark.spec import check_rule, row_classes
from harness.benchmark.spec.command_target import CommandTarget
from harness.benchmark.spec.metric_units import RowCost
from harness.errors import KoptError
from harness.formats.json_codec import ConvertError, convert
from harness.formats.text import plain

FaultKind = Literal[
    "build", "exit", "crash", "timeout", "output", "memory", "processes", "killed", "missing-file",
    "stale-file", "unreadable", "missing-column", "empty-table", "nan", "not-a-number",
    "not-positive", "failed-check", "duplicate-rows", "changed-rows", "changed-files",
    "disturbed"]
TABLE_LIMITS = {"bytes": 4 << 20, "rows": 4096, "columns": 256, "cell": 500}
"""Limits of a benchmark's file."""
LEAST_VALUE, MOST_VALUE = 1e-12, 1e18
"""Limits of a metric in any unit."""
MOST_NAMED = 3
"""Rows that a message names at most."""


class BenchmarkFault(KoptError):
    """One run of a benchmark gave no usable table; `kind` says why."""

    exit_code = 1

    def __init__(self, kind: FaultKind, what: str, *, fix: str = "") -> None:
        super().__init__(what, fix=fix)
        self.kind: FaultKind = kind


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """The cells of one CSV file as text; a column without a name is an index and is left out."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sha256: str = ""

    def column(self, name: str) -> tuple[str, ...]:
        place = self.columns.index(name)
        return tuple(row[place] for row in self.rows)

    def cells(self, row: int, names: Sequence[str]) -> tuple[str, ...]:
        """Return the cells of a row in some columns."""
        return tuple(self.rows[row][self.columns.index(name)] for name in names)


@dataclass(frozen=True, kw_only=True)
class FailedRow:
    """A row that fails its check, and why."""

    row: int
    what: str


@dataclass(frozen=True, kw_only=True)
class TableReading:
    """One run's table with its `costs` by row and metric, empty for a row that fails its check."""

    table: ResultTable
    costs: tuple[tuple[float, ...], ...]
    failed: tuple[FailedRow, ...] = ()
    wall_s: float = 0.0


def parse_answer(answer: object) -> ResultTable:
    """Return the table in the reader's answer. Raises BenchmarkFault if it is malformed."""
    try:
        table = convert(answer, ResultTable)
    except ConvertError as error:
        raise BenchmarkFault("unreadable", f"cannot be read: {error}") from None
    if any(len(row) != len(table.columns) for row in table.rows):
        raise BenchmarkFault("unreadable", "has rows of different lengths")
    kept = [place for place, name in enumerate(table.columns)
            if name and not name.startswith("Unnamed:")]
    return ResultTable(
        columns=tuple(plain(table.columns[place], 80) for place in kept),
        rows=tuple(tuple(plain(row[place], 80) for place in kept) for row in table.rows),
        sha256=table.sha256)


def judge_table(table: ResultTable, target: CommandTarget, row_cost: RowCost, *, csv: str,
                wall_s: float = 0.0) -> TableReading:
    """Check a table's rows and return their costs. Raises BenchmarkFault for an unusable table.

    The metrics of a row that fails its check are ignored.
    """
    metrics = [metric.name for metric in row_cost.metrics]
    if not table.columns:
        raise BenchmarkFault("empty-table", f"{csv} is empty")
    for name in (target.check.column, *metrics, *row_classes.required_columns(target)):
        if name not in table.columns:
            is_of_weights = target.weights is not None and name in target.weights.columns
            raise BenchmarkFault(
                "missing-column", f"{csv} has no column {name!r}"
                f"{', which target.weights name' if is_of_weights else ''}",
                fix=f"it has {', '.join(table.columns[:12])}")
    if not table.rows:
        raise BenchmarkFault("empty-table", f"{csv} has a header and no rows")
    rule = check_rule.parse(target.check.rule)
    costs: list[tuple[float, ...]] = []
    failed: list[FailedRow] = []
    for row, cell in enumerate(table.column(target.check.column)):
        if not rule.passes(cell):
            shown = repr(cell) if cell else "empty"
            failed.append(FailedRow(row=row, what=(
                f"{target.check.column} is {shown}, expected {rule.text}")))
            costs.append(())
            continue
        values = [_value(text, name, row, csv) for text, name in
                  zip(table.cells(row, metrics), metrics, strict=True)]
        try:
            costs.append(row_cost.costs(values))
        except OverflowError as error:
            raise BenchmarkFault("not-positive", f"{csv} row {row + 1}: {error}") from None
    return TableReading(table=table, costs=tuple(costs), failed=tuple(failed), wall_s=wall_s)


def _value(text: str, name: str, row: int, csv: str) -> float:
    """Return a metric's number. Raises BenchmarkFault unless it is finite and above zero."""
    where = f"{csv} row {row + 1}: {name}"
    value = check_rule.number(text)
    if not text.strip() or (value is not None and math.isnan(value)):
        raise BenchmarkFault("nan", f"{where} is {'NaN' if text.strip() else 'empty'}")
    if value is None:
        raise BenchmarkFault("not-a-number", f"{where} is {text!r}, no number")
    if not 0 < value < math.inf:
        raise BenchmarkFault("not-positive", f"{where} is {text}, no number above zero")
    if not LEAST_VALUE < value < MOST_VALUE:
        raise BenchmarkFault("not-positive", f"{where} is {text}, outside the range of any metric")
    return value
