"""Propose config classes, representative shapes and the quick script from the baseline's runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from engine.discovery.classes import quick_script, representative, strata
from engine.discovery.classes.quick_script import QuickScript
from engine.discovery.classes.representative import Representatives
from engine.discovery.classes.strata import Strata, Stratum
from engine.discovery.project import columns
from engine.discovery.project.columns import TableColumn
from harness.benchmark.runs import row_keys, run_pairs
from harness.benchmark.runs.result_table import BenchmarkFault, ResultTable, TableReading
from harness.benchmark.runs.row_keys import RowKey
from harness.benchmark.runs.run_pairs import BrokenIncumbent
from harness.benchmark.spec import metric_units
from harness.benchmark.spec.command_target import CommandTarget, Metric
from harness.benchmark.spec.metric_units import RowCost

UNSTEADY = "differs between runs, or is measured"


@dataclass(frozen=True, kw_only=True)
class RowBehaviour:
    """The rows of several runs: their columns, costs, costs of other implementations, weights."""

    columns: tuple[TableColumn, ...]
    costs: tuple[float, ...]
    others: tuple[tuple[float, ...], ...] = ()
    shares: tuple[float, ...] = ()
    """By row, its weight when core classes are chosen: its calls, multiplied by its cost if
    `is_timed`."""
    scored: tuple[float, ...] = ()
    """By row, its weight in the score."""
    is_timed: bool = True
    """Whether a cost is a time, which grows with the work; else it is per unit of work."""


@dataclass(frozen=True, kw_only=True)
class ClassProposal:
    """Classes, the rows that represent them, and the quick script that runs those rows.

    `shapes` are the representative rows as a manifest lists them. With `is_measured`, they are the
    rows of the user's own quick command, empty if its table lacks config columns.
    """

    strata: Strata
    chosen: Representatives
    shapes: tuple[str | dict[str, int], ...]
    quick: QuickScript
    scored: tuple[float, ...]
    """The share of each class in the score; `counting` says in words how rows count in it."""
    counting: str
    is_timed: bool = True
    is_measured: bool = False

    @property
    def description(self) -> tuple[str, ...]:
        """The proposal in lines, for the log and for people."""
        lines = (f"config classes: {self.strata.why}",
                 f"core, together at least {strata.CORE_SHARE:.0%} of the "
                 f"{'time' if self.is_timed else 'calls'}: {', '.join(self.strata.core)}",
                 self._shapes)
        return (*lines, self.chosen.note) if self.chosen.note else lines

    @property
    def _shapes(self) -> str:
        if not self.is_measured:
            return f"{len(self.chosen.rows)} representative shapes; {self.quick.why}"
        if not self.shapes:
            return "the quick command's rows lack config columns: no shapes are listed"
        return f"{len(self.shapes)} representative shapes, as the quick command measures them"


def propose_classes(target: CommandTarget, readings: Sequence[TableReading], source: str = "", *,
                    quick_table: ResultTable | None = None) -> ClassProposal:
    """Propose classes from runs of a benchmark on the same code.

    `source` is the benchmark's text. `quick_table` is the table of the user's own quick command;
    with it, its rows are the shapes. If `target.configs` names classes, these are used. Raises
    BrokenIncumbent.
    """
    rows = read_rows(target, readings)
    best = strata.find_strata(rows.columns, rows.costs, others=rows.others, shares=rows.shares,
                              is_timed=rows.is_timed, configs=target.configs)
    chosen = representative.choose_rows(best.classes, rows.columns, rows.costs)
    shapes = representative.row_cells(best.keys, rows.columns, chosen.rows) \
        if quick_table is None else representative.shapes_of_table(best.keys, quick_table)
    return ClassProposal(
        strata=best, chosen=chosen, shapes=representative.manifest_shapes(shapes),
        quick=quick_script.make_script(target, shapes, source),
        scored=_class_shares(best.classes, rows.scored), counting=target.counting,
        is_timed=rows.is_timed,
        is_measured=quick_table is not None)


def _class_shares(classes: Sequence[Stratum], of_rows: Sequence[float]) -> tuple[float, ...]:
    whole = sum(of_rows)
    return tuple(sum(of_rows[row] for row in each.rows) / whole for each in classes)


def read_rows(target: CommandTarget, readings: Sequence[TableReading]) -> RowBehaviour:
    """Return the rows of several runs on the same code; a row's cost is the median of its runs.

    Raises BrokenIncumbent if the runs do not have the same rows, or a row fails its check.
    """
    tables = [reading.table for reading in readings]
    table, row_cost = tables[0], RowCost(target)
    try:
        config_columns = row_keys.find_config_columns(target, tables, tables).columns
        keys = list(row_keys.rows_by_key(table, config_columns))
        costs = _costs(row_cost, readings, config_columns, keys)
    except BenchmarkFault as fault:
        raise BrokenIncumbent(fault) from None
    measured = {target.check.column, *target.ignore, *(metric.name for metric in target.metrics)}
    classified = [columns.classify_column(name, table.column(name)) for name in table.columns
                  if name not in measured]
    is_timed = not any(metric.is_rate for metric in row_cost.metrics)
    calls = (1.0,) * len(costs)
    if target.weights is not None:
        calls = tuple(run_pairs.row_weights(target, config_columns, keys).of)
    by_cost = tuple(cost * count for cost, count in zip(costs, calls, strict=True))
    return RowBehaviour(
        columns=tuple(column if column.name in config_columns else replace(column, why=UNSTEADY)
                      for column in classified if column.name in config_columns
                      or column.role in ("none", "cost")),
        costs=costs, shares=by_cost if is_timed else calls,
        scored=by_cost if target.scoring == "total" else calls, is_timed=is_timed,
        others=tuple(_other_costs(row_cost, classified)))


def _costs(row_cost: RowCost, readings: Sequence[TableReading], config_columns: Sequence[str],
           keys: Sequence[RowKey]) -> tuple[float, ...]:
    """Return the median cost of each row over some runs. Raises BenchmarkFault."""
    costs: dict[RowKey, list[float]] = {key: [] for key in keys}
    for reading in readings:
        if reading.failed:
            failed = reading.failed[0]
            raise BenchmarkFault("failed-check", f"row {failed.row + 1}: {failed.what}")
        rows = row_keys.rows_by_key(reading.table, config_columns)
        row_keys.expect_same_rows(keys, rows, config_columns, whose="its first run")
        for key in keys:
            costs[key].append(row_cost.combined(reading.costs[rows[key]]))
    return tuple(median(of_row) for of_row in costs.values())


def _other_costs(row_cost: RowCost,
                 classified: Sequence[TableColumn]) -> Iterator[tuple[float, ...]]:
    """Yield the costs of other implementations, in columns of the metrics' kind (time or rate).

    Further columns of the measured implementation, such as a rate, add no information.
    """
    bases = {metric.base for metric in row_cost.metrics}
    implementations = {columns.implementation_of(metric.name) for metric in row_cost.metrics}
    for column in classified:
        if column.role == "cost" and columns.implementation_of(column.name) not in implementations \
                and metric_units.resolve(Metric(name=column.name)).base in bases:
            costs = columns.cost_of(column.name, column.numbers)
            if costs:
                yield costs
