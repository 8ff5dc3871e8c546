"""From the baseline's runs to config classes, representative shapes and the quick script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from engine.discovery.classes import quick_script as quick
from engine.discovery.classes import representative, strata
from engine.discovery.classes.quick_script import QuickScript
from engine.discovery.classes.representative import Representatives
from engine.discovery.classes.strata import Strata
from engine.discovery.project import columns, metric_columns
from engine.discovery.project.columns import TableColumn
from harness.benchmark.runs import row_keys, run_pairs
from harness.benchmark.runs.result_table import BenchmarkFault, ResultTable, TableReading
from harness.benchmark.runs.row_keys import RowKey
from harness.benchmark.runs.run_pairs import BrokenIncumbent
from harness.benchmark.spec import metric_units
from harness.benchmark.spec.command_target import CommandTarget, Metric
from harness.benchmark.spec.metric_units import RowCost


@dataclass(frozen=True, kw_only=True)
class RowBehaviour:
    """What runs of one side show of each row: columns, cost, costs elsewhere, what it counts."""

    columns: tuple[TableColumn, ...]
    costs: tuple[float, ...]
    others: tuple[tuple[float, ...], ...] = ()
    shares: tuple[float, ...] = ()
    timed: bool = True
    """Whether a cost is a time, and so grows with the work, or already that of a unit of it."""


@dataclass(frozen=True, kw_only=True)
class ClassProposal:
    """The classes, the rows that stand for them (`shapes` as the manifest has them), the script.

    With `measured`, `shapes` are the rows of a quick command of the user's instead, as far as the
    config columns tell them.
    """

    strata: Strata
    chosen: Representatives
    shapes: tuple[str | dict[str, int], ...]
    quick: QuickScript
    measured: bool = False

    @property
    def core(self) -> tuple[str, ...]:
        return self.strata.core

    @property
    def words(self) -> tuple[str, ...]:
        """Say in lines what was found, for a log and for a person."""
        found = [f"config classes: {self.strata.why}",
                 f"core, with {strata.CORE_SHARE:.0%} of the weight: {', '.join(self.core)}",
                 self._shapes]
        return (*found, self.chosen.note) if self.chosen.note else tuple(found)

    @property
    def _shapes(self) -> str:
        if not self.measured:
            return f"{len(self.chosen.rows)} representative shapes; {self.quick.why}"
        if not self.shapes:
            return "the quick command's rows lack config columns: no shapes are listed"
        return f"{len(self.shapes)} representative shapes, as the quick command measures them"


def propose(target: CommandTarget, readings: Sequence[TableReading], source: str = "", *,
            weights: Mapping[RowKey, float] | None = None, beside: Sequence[TableReading] = (),
            measured: ResultTable | None = None) -> ClassProposal:
    """Return what runs of a benchmark on the same code say; `source` is the benchmark's text.

    `weights` are those of rows, by the cells of `strata.keys_of`, where time is not what counts.
    `beside` are runs on other code, such as a candidate's: rows that gain alike are of one class.
    `measured` is what a quick command of the user's writes: its rows are the shapes.
    The classes are those of `target.configs` where it names some. Raises BrokenIncumbent.
    """
    runs = read(target, readings, weights=weights, beside=beside)
    found = strata.find(runs.columns, runs.costs, others=runs.others, shares=runs.shares,
                        timed=runs.timed, configs=target.configs)
    chosen = representative.choose(found.classes, runs.columns, runs.costs)
    cells = representative.cells(found.keys, runs.columns, chosen.rows) if measured is None else \
        representative.listed(found.keys, measured)
    return ClassProposal(strata=found, chosen=chosen, shapes=representative.shapes(cells),
                    quick=quick.script(target, cells, source), measured=measured is not None)


def read(target: CommandTarget, readings: Sequence[TableReading], *,
         weights: Mapping[RowKey, float] | None = None,
         beside: Sequence[TableReading] = ()) -> RowBehaviour:
    """Return the rows of several runs on the same code, each cost the median of its runs.

    Raises BrokenIncumbent where the runs do not have the same rows, or a row fails its check.
    """
    tables = [reading.table for reading in (*readings, *beside)]
    first, measure = tables[0], RowCost(target)
    try:
        found = row_keys.find_config_columns(target, tables, tables).columns
        keys = list(row_keys.rows_by_key(first, found))
        costs = _costs(measure, readings, found, keys)
        other = _costs(measure, beside, found, keys)
    except BenchmarkFault as fault:
        raise BrokenIncumbent(fault) from None
    left_out = {target.check.column, *target.ignore, *(one.name for one in target.metrics)}
    looked = [columns.look(name, first.column(name)) for name in first.columns
              if name not in left_out]
    timed = not any(metric.is_rate for metric in measure.metrics)
    named = [first.columns.index(name) for name in strata.keys_of(looked)]
    shares = costs if timed else (1.0,) * len(costs)
    if target.weights is not None:
        spread = run_pairs.row_weights(target, found, keys)
        shares = tuple(one * weight for one, weight in zip(shares, spread.of, strict=True))
    elif weights:
        shares = tuple(weights.get(tuple(row[at] for at in named), 1.0) for row in first.rows)
    return RowBehaviour(columns=tuple(one for one in looked
                              if one.name in found or one.role in ("none", "cost")),
                costs=costs, shares=shares, timed=timed,
                others=(*([other] if beside else []), *_others(measure, looked)))


def _costs(measure: RowCost, readings: Sequence[TableReading], found: Sequence[str],
           keys: Sequence[RowKey]) -> tuple[float, ...]:
    """Return what each row costs in the middle of some runs. Raises Fault."""
    seen: dict[RowKey, list[float]] = {key: [] for key in keys}
    for reading in readings:
        if reading.failed:
            failed = reading.failed[0]
            raise BenchmarkFault("failed-check", f"row {failed.row + 1}: {failed.what}")
        places = row_keys.rows_by_key(reading.table, found)
        row_keys.expect_same_rows(keys, places, found, whose="its first run")
        for key in keys:
            seen[key].append(measure.combined(reading.costs[places[key]]))
    return tuple(median(costs) for costs in seen.values() if costs)


def _others(measure: RowCost, looked: Sequence[TableColumn]) -> Iterator[tuple[float, ...]]:
    """Yield the costs of other implementations, of the kind of the metrics: what else a table says
    of the measured one, such as a rate beside its time, is no comparison.
    """
    bases = {metric.base for metric in measure.metrics}
    own = {metric_columns.whose(metric.name) for metric in measure.metrics}
    for one in looked:
        if one.role == "cost" and metric_columns.whose(one.name) not in own \
                and metric_units.resolve(Metric(name=one.name)).base in bases:
            costs = columns.cost_of(one.name, one.numbers)
            if costs:
                yield costs
