"""Turn pairs of runs into log-ratios by class; a run is one sample, as its rows are not
independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness.benchmark.runs import row_keys
from harness.benchmark.runs.result_table import BenchmarkFault, TableReading
from harness.benchmark.runs.row_keys import ConfigColumns, RowKey
from harness.benchmark.spec import table_rules
from harness.benchmark.spec.command_target import BenchmarkMode, CommandTarget, Scoring
from harness.benchmark.spec.metric_units import RowCost
from harness.call_trace import weights
from harness.call_trace.weights import Spread
from harness.errors import IncumbentFault
from harness.timing.stats import geometric_mean

Costs = Sequence[float]


class BrokenIncumbent(IncumbentFault):
    """The benchmark does not work on the incumbent either, so that no candidate is to blame."""

    def __init__(self, fault: BenchmarkFault) -> None:
        super().__init__(f"the incumbent's own benchmark: {fault.what}", fix=fault.fix)


@dataclass(frozen=True, kw_only=True)
class RunPair:
    """One run of each side, in either order."""

    incumbent: TableReading
    candidate: TableReading


@dataclass(frozen=True, kw_only=True)
class ClassSeries:
    """One config class over the pairs; `by_metric` has log-ratios of each of several metrics.

    `candidate_us` and `incumbent_us` are median costs. `weight` is the sum of its rows' weights,
    which are 1 unless the target has weights.
    """

    name: str
    keys: tuple[RowKey, ...]
    weight: float
    log_ratios: tuple[float, ...]
    by_metric: Mapping[str, tuple[float, ...]]
    candidate_us: float
    incumbent_us: float


@dataclass(frozen=True, kw_only=True)
class Series:
    """All classes over the pairs, and the log-ratio of the whole table in each pair."""

    classes: tuple[ClassSeries, ...]
    overall: tuple[float, ...]
    keys: tuple[RowKey, ...]
    config: ConfigColumns
    shares: Spread


def match_pairs(target: CommandTarget, row_cost: RowCost, pairs: Sequence[RunPair]) -> Series:
    """Return the series of pairs. Raises BenchmarkFault (the candidate's) or BrokenIncumbent."""
    incumbents = [pair.incumbent.table for pair in pairs]
    candidates = [pair.candidate.table for pair in pairs]
    config = row_keys.find_config_columns(target, incumbents, candidates)
    try:
        keys = list(row_keys.rows_by_key(incumbents[0], config.columns))
        incumbent_rows = [row_keys.matching_rows(keys, table, config.columns,
                                                 whose="its first run") for table in incumbents]
    except BenchmarkFault as fault:
        raise BrokenIncumbent(fault) from None
    candidate_rows = [row_keys.matching_rows(keys, table, config.columns) for table in candidates]
    costs = {key: [(pair.incumbent.costs[before[key]], pair.candidate.costs[after[key]])
                   for pair, before, after
                   in zip(pairs, incumbent_rows, candidate_rows, strict=True)] for key in keys}
    shares = weights.spread(target.weights, config.columns, keys)
    weight_of = dict(zip(keys, shares.of, strict=True))

    def series_of(name: str, members: Sequence[RowKey]) -> ClassSeries:
        return _class_series(name, members, [costs[key] for key in members],
                             [weight_of[key] for key in members], row_cost, target.scoring)

    classes = tuple(series_of(name, members)
                    for name, members in rows_by_class(target, config, keys).items())
    return Series(classes=classes, overall=series_of("all", keys).log_ratios, keys=tuple(keys),
                  config=config, shares=shares)


def expect_weights_apply(target: CommandTarget, series: Series, mode: BenchmarkMode) -> None:
    """Raise InputError if weights name no row of the full benchmark; the quick one may differ."""
    if mode.name == "full":
        row_weights(target, series.config.columns, series.keys)


def row_weights(target: CommandTarget, columns: Sequence[str], keys: Sequence[RowKey]) -> Spread:
    """Return the rows' weights. Raises InputError if the target's weights name none of the rows."""
    shares = weights.spread(target.weights, columns, keys)
    if target.weights is not None and shares.names_none:
        raise weights.unnamed(target.weights, "row of the benchmark",
                              f"its rows are like {weights.label(columns, keys[0])}")
    return shares


def table_cost(target: CommandTarget, row_cost: RowCost, series: Series,
               reading: TableReading) -> float:
    """Return the cost of all rows of one run, combined as they are scored."""
    rows = row_keys.rows_by_key(reading.table, series.config.columns)
    return combine_costs([row_cost.combined(reading.costs[rows[key]]) for key in series.keys],
                         target.scoring, series.shares.of)


def rows_by_class(target: CommandTarget, config: ConfigColumns,
                  keys: Sequence[RowKey]) -> dict[str, list[RowKey]]:
    """Return the rows of each class: those that share `configs`, or one row per class without."""
    if not target.configs:
        return {name: [key] for key, name in row_keys.row_labels(keys, config.columns).items()}
    classes = table_rules.group_rows(target.configs, config.columns, keys)
    return {name: [keys[row] for row in rows] for name, rows in classes.items()}


def _class_series(name: str, keys: Sequence[RowKey],
                  costs: Sequence[Sequence[tuple[Costs, Costs]]], weight: Sequence[float],
                  row_cost: RowCost, scoring: Scoring) -> ClassSeries:
    """Return a class's series from costs by row and pair (incumbent, candidate) and row weights."""
    combined = [[(row_cost.combined(before), row_cost.combined(after)) for before, after in row]
                for row in costs]

    def log_ratios(table: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, ...]:
        """Return the rows' log-ratio in each pair, from costs by row and pair."""
        sides = ([combine_costs([row[pair][side] for row in table], scoring, weight)
                  for side in (0, 1)] for pair in range(len(table[0])))
        return tuple(math.log(before / after) for before, after in sides)

    by_metric = {metric.name: log_ratios([[(before[place], after[place]) for before, after in row]
                                          for row in costs])
                 for place, metric in enumerate(row_cost.metrics)}
    incumbent_us, candidate_us = (
        combine_costs([median(sides[side] for sides in row) for row in combined], scoring, weight)
        for side in (0, 1))
    return ClassSeries(
        name=name, keys=tuple(keys), weight=math.fsum(weight), log_ratios=log_ratios(combined),
        by_metric=by_metric if len(by_metric) > 1 else {}, incumbent_us=incumbent_us,
        candidate_us=candidate_us)


def combine_costs(costs: Sequence[float], scoring: Scoring, weight: Sequence[float]) -> float:
    """Return the combined cost of rows: their weighted sum, or their weighted geometric mean."""
    if scoring == "total":
        return math.fsum(w * cost for w, cost in zip(weight, costs, strict=True))
    return geometric_mean(costs, weight)
