"""Pairs of runs as log-ratios by config class: one run of each side is one sample.

Whatever a run did to all of its rows it did to one sample: the rows of a run are no samples of
their own, and a run is the cluster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness.benchmark.runs import row_keys as rows
from harness.benchmark.runs.result_table import BenchmarkFault, TableReading
from harness.benchmark.runs.row_keys import ConfigColumns, RowKey
from harness.benchmark.spec import row_classes as classes
from harness.benchmark.spec.command_target import BenchmarkMode, CommandTarget, Scoring
from harness.benchmark.spec.metric_units import RowCost
from harness.call_trace import weights
from harness.call_trace.weights import Spread
from harness.errors import IncumbentFault
from harness.timing.stats import weighted_mean

Costs = Sequence[float]


class BrokenIncumbent(IncumbentFault):
    """The benchmark does not work on the incumbent either: no candidate is to blame."""

    def __init__(self, fault: BenchmarkFault) -> None:
        super().__init__(f"the incumbent's own benchmark: {fault.what}", fix=fault.fix)


@dataclass(frozen=True, kw_only=True)
class RunPair:
    """One run of each side, in either order."""

    incumbent: TableReading
    candidate: TableReading


@dataclass(frozen=True, kw_only=True)
class ClassSeries:
    """One config class over the pairs; costs are medians, `by_metric` are its log-ratios apart.

    `weight` is that of its rows together: as many as they are, or what the target's weights say.
    """

    name: str
    rows: int
    weight: float
    log_ratios: tuple[float, ...]
    by_metric: Mapping[str, tuple[float, ...]]
    candidate_us: float
    incumbent_us: float


@dataclass(frozen=True, kw_only=True)
class Series:
    """All classes over the pairs, and the score of the whole table in each pair."""

    classes: tuple[ClassSeries, ...]
    overall: tuple[float, ...]
    keys: tuple[RowKey, ...]
    found: ConfigColumns
    shares: Spread

    @property
    def rows(self) -> int:
        return len(self.keys)

    @property
    def weight_of(self) -> dict[RowKey, float]:
        """What each row weighs."""
        return dict(zip(self.keys, self.shares.of, strict=True))


def build(target: CommandTarget, measure: RowCost, pairs: Sequence[RunPair]) -> Series:
    """Match the rows of all runs by their configuration.

    Raises BenchmarkFault if the candidate's rows do not fit, BrokenIncumbent if the incumbent's do
    not agree among themselves.
    """
    mine = [pair.incumbent.table for pair in pairs]
    theirs = [pair.candidate.table for pair in pairs]
    found = rows.find_config_columns(target, mine, theirs)
    try:
        wanted = rows.keyed(mine[0], found.columns)
        own = [rows.keyed(table, found.columns) for table in mine]
        for run in own:
            rows.expect_same(wanted, run, found.columns, whose="its first run")
    except BenchmarkFault as fault:
        raise BrokenIncumbent(fault) from None
    got = [rows.keyed(table, found.columns) for table in theirs]
    for run in got:
        rows.expect_same(wanted, run, found.columns)
    costs = {key: [(pair.incumbent.costs[one[key]], pair.candidate.costs[other[key]])
                   for pair, one, other in zip(pairs, own, got, strict=True)] for key in wanted}
    shares = weights.spread(target.weights, found.columns, list(wanted))
    weight = dict(zip(wanted, shares.of, strict=True))

    def together_of(name: str, keys: Sequence[RowKey]) -> ClassSeries:
        return _class(name, [costs[key] for key in keys], [weight[key] for key in keys], measure,
                      target.scoring)

    classes = tuple(together_of(name, keys)
                    for name, keys in by_class(target, found, list(wanted)).items())
    return Series(classes=classes, overall=together_of("all", list(wanted)).log_ratios,
                  keys=tuple(wanted), found=found, shares=shares)


def expect_named(target: CommandTarget, found: Series, mode: BenchmarkMode) -> None:
    """Refuse weights that name no row of the full benchmark; the quick one may have none of them.
    """
    if mode.name == "full":
        weighed(target, found.found.columns, found.keys)


def weighed(target: CommandTarget, columns: Sequence[str], keys: Sequence[RowKey]) -> Spread:
    """Return what rows weigh. Raises InputError if the target's weights name none of them."""
    shares = weights.spread(target.weights, columns, keys)
    if target.weights is not None and shares.names_none:
        raise weights.unnamed(target.weights, "row of the benchmark",
                              f"its are such as {rows.label(keys[0], columns)}")
    return shares


def cost(target: CommandTarget, measure: RowCost, found: Series, reading: TableReading) -> float:
    """Return what the rows of one run cost together, as they are scored."""
    weight, keyed = found.weight_of, rows.keyed(reading.table, found.found.columns)
    return together([measure.combined(reading.costs[keyed[key]]) for key in found.keys],
                    target.scoring, [weight[key] for key in found.keys])


def by_class(target: CommandTarget, found: ConfigColumns, keys: Sequence[RowKey]) -> dict[str,
             list[RowKey]]:
    """Return the rows by the class they are in: one each, or those that share `configs`."""
    if not target.configs:
        return {name: [key] for key, name in rows.labels(keys, found.columns).items()}
    named = classes.group_rows(target.configs, found.columns, keys)
    return {name: [keys[row] for row in inside] for name, inside in named.items()}


def _class(name: str, costs: Sequence[Sequence[tuple[Costs, Costs]]], weight: Sequence[float],
           measure: RowCost, scoring: Scoring) -> ClassSeries:
    """Return a class; `costs` are by row and pair, of incumbent and candidate, by metric, and
    `weight` is by row.
    """
    whole = [[(measure.combined(one), measure.combined(other)) for one, other in row]
             for row in costs]
    pairs = range(len(whole[0]))
    by_metric = {metric.name: tuple(_ratio([(row[pair][0][place], row[pair][1][place])
                                            for row in costs], scoring, weight)
                                    for pair in pairs)
                 for place, metric in enumerate(measure.metrics)}
    return ClassSeries(
        name=name, rows=len(costs), weight=math.fsum(weight),
        by_metric=by_metric if len(by_metric) > 1 else {},
        log_ratios=tuple(_ratio([row[pair] for row in whole], scoring, weight) for pair in pairs),
        incumbent_us=together([median(one for one, _ in row) for row in whole], scoring, weight),
        candidate_us=together([median(other for _, other in row) for row in whole], scoring,
                              weight))


def _ratio(costs: Sequence[tuple[float, float]], scoring: Scoring,
           weight: Sequence[float]) -> float:
    """Return the log-ratio of some rows' costs in one pair."""
    if scoring == "total":
        return math.log(together([one for one, _ in costs], scoring, weight)
                        / together([two for _, two in costs], scoring, weight))
    return weighted_mean([math.log(one / two) for one, two in costs], weight)


def together(costs: Sequence[float], scoring: Scoring, weight: Sequence[float]) -> float:
    """Return some rows' cost as it is scored: their sum, or their geometric mean, by weight."""
    if scoring == "total":
        return math.fsum(w * cost for w, cost in zip(weight, costs, strict=True))
    return math.exp(weighted_mean([math.log(cost) for cost in costs], weight))
