"""Read and judge a benchmark's table; each fault has a kind and a one-line message."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.benchmark.spec import metric_units, table_rules
from harness.benchmark.spec.command_target import CommandTarget
from harness.benchmark.spec.metric_units import RowCost
from harness.call_trace import weights
from harness.errors import EnvironmentFault, KoptError
from harness.formats.json_codec import ConvertError, convert
from harness.formats.text import plain
from harness.isolation import raw_outputs, shared_zygotes
from harness.isolation.confinement import Confine
from harness.isolation.guard import clean_env
from harness.isolation.process_outcome import Limits
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.isolation.zygote_client import Zygote, ZygoteKind

FaultKind = Literal[
    "build", "exit", "crash", "timeout", "output", "memory", "processes", "killed", "missing-file",
    "stale-file", "unreadable", "missing-column", "empty-table", "nan", "not-a-number",
    "not-positive", "failed-check", "duplicate-rows", "changed-rows", "changed-files",
    "disturbed"]
TABLE_LIMITS = {"bytes": 4 << 20, "rows": 4096, "columns": 256, "cell": 500}
"""Limits of a benchmark's file."""
PRINTED = (".txt", ".log", ".out")
"""Files that may hold lines printed for people instead of a table end so."""
LEAST_VALUE, MOST_VALUE = 1e-12, 1e18
"""Limits of a metric in any unit."""
MOST_NAMED = 3
"""Rows that a message names at most."""
READ_LIMITS = Limits(wall_s=150.0, memory_bytes=4 << 30, file_bytes=0)
"""Limits of reading a file, with the import of pandas where no zygote has imported it."""


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

    def expect_passed(self, fix: str = "") -> None:
        """Raise BenchmarkFault for the first row that fails its check."""
        for failed in self.failed[:1]:
            raise BenchmarkFault("failed-check", f"row {failed.row + 1}: {failed.what}", fix=fix)


def judge_table(table: ResultTable, target: CommandTarget, row_cost: RowCost, *, csv: str,
                wall_s: float = 0.0) -> TableReading:
    """Check a table's rows; return it with the costs of those that pass. Raises BenchmarkFault."""
    metrics = [metric.name for metric in row_cost.metrics]
    if not table.columns:
        raise BenchmarkFault("empty-table", f"{csv} is empty")
    for name in (target.check.column, *metrics, *table_rules.required_columns(target)):
        if name not in table.columns:
            is_of_weights = target.weights is not None and name in target.weights.columns
            raise BenchmarkFault(
                "missing-column", f"{csv} has no column {name!r}"
                f"{', which target.weights name' if is_of_weights else ''}",
                fix=f"it has {', '.join(table.columns[:12])}")
    if not table.rows:
        raise BenchmarkFault("empty-table", f"{csv} has a header and no rows")
    rule = table_rules.parse(target.check.rule)
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
    _keep_failed_rows(table, failed)
    return TableReading(table=table, costs=tuple(costs), failed=tuple(failed), wall_s=wall_s)


def _keep_failed_rows(table: ResultTable, failed: Sequence[FailedRow]) -> None:
    if failed:
        rows = [(str(failure.row + 1), failure.what, *table.rows[failure.row])
                for failure in failed]
        raw_outputs.keep("failed-rows.tsv", "".join(
            map(raw_outputs.table_row, [("row", "why", *table.columns), *rows])))


def _value(text: str, name: str, row: int, csv: str) -> float:
    """Return a metric's number. Raises BenchmarkFault unless it is within the limits."""
    where = f"{csv} row {row + 1}: {name}"
    value = weights.number(text)
    if not text.strip() or (value is not None and math.isnan(value)):
        raise BenchmarkFault("nan", f"{where} is {'NaN' if text.strip() else 'empty'}")
    if value is None:
        raise BenchmarkFault("not-a-number", f"{where} is {text!r}, not a number")
    if not 0 < value < math.inf:
        raise BenchmarkFault("not-positive", f"{where} is {text}, not a number above zero")
    if not LEAST_VALUE < value < MOST_VALUE:
        raise BenchmarkFault("not-positive", f"{where} is {text}, outside the range of any metric")
    return value


def reading_zygote(python: str | None) -> Zygote | None:
    """Return a zygote that has imported pandas, if there can be one."""
    env = clean_env({"OPENBLAS_NUM_THREADS": "1"})  # a fork would not have numpy's threads
    kind = ZygoteKind(python=python or sys.executable, language="", modules=("pandas",),
                      env=tuple(sorted(env.items())))
    return shared_zygotes.zygote(kind)


def read(path: Path, name: str, folder: Path, python: str | None = None,
         cancel: threading.Event | None = None) -> ResultTable:
    """Return a file's table, read with pandas in a guarded process of its own in `folder`.

    The process is one of the target's Python and has seen no other file. Raises BenchmarkFault,
    Cancelled, EnvironmentFault without pandas.
    """
    folder.mkdir(parents=True, exist_ok=True)
    units = sorted(metric_units.KNOWN) if path.name.endswith(PRINTED) else []
    try:
        with Peer("read_results", cwd=folder, limits=READ_LIMITS, python=python,
                  confine=Confine(cards=False), zygote=reading_zygote(python),
                  cancel=cancel) as peer:
            answer = peer.ask("read", path=str(path), limits=TABLE_LIMITS, units=units)
    except PeerError as error:
        raise BenchmarkFault("unreadable", f"{name} {error.what}") from None
    except PeerDied as error:
        raise BenchmarkFault("unreadable", f"{name}: reading it {plain(error.what)}") from None
    if "missing" in answer:
        python = python or sys.executable
        raise EnvironmentFault(
            "cannot import pandas, which reads the benchmark's table: "
            f"{plain(str(answer['missing']), 200)}", where=python,
            fix=f"{python} -m pip install pandas")
    try:
        table = convert(answer, ResultTable)
    except ConvertError as error:
        raise BenchmarkFault("unreadable", f"{name} cannot be read: {error}") from None
    if any(len(row) != len(table.columns) for row in table.rows):
        raise BenchmarkFault("unreadable", f"{name} has rows of different lengths")
    kept = [place for place, column in enumerate(table.columns)
            if column and not column.startswith("Unnamed:")]
    return ResultTable(
        columns=tuple(plain(table.columns[place], 80) for place in kept),
        rows=tuple(tuple(plain(row[place], 80) for place in kept) for row in table.rows),
        sha256=table.sha256)
