"""Pairs of runs as log-ratios by config class: one run of each side is one sample.

Whatever a run did to all of its rows it did to one sample: the rows of a run are no samples of
their own, and a run is the cluster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from harness.errors import InputError
from harness.reported import classes, rows
from harness.reported.rows import Found, Key
from harness.reported.table import Fault, Reading
from harness.reported.target import CommandTarget, Scoring
from harness.reported.units import Measure

Costs = Sequence[float]


class SickIncumbent(InputError):
    """The benchmark does not work on the incumbent either: no candidate is to blame."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"the incumbent's own benchmark: {fault.what}", fix=fault.fix)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One run of each side, in either order."""

    incumbent: Reading
    candidate: Reading


@dataclass(frozen=True, kw_only=True)
class ClassSeries:
    """One config class over the pairs; costs are medians, `by_metric` are its log-ratios apart."""

    name: str
    rows: int
    log_ratios: tuple[float, ...]
    by_metric: Mapping[str, tuple[float, ...]]
    candidate_us: float
    incumbent_us: float


@dataclass(frozen=True, kw_only=True)
class Series:
    """All classes over the pairs, and the score of the whole table in each pair."""

    classes: tuple[ClassSeries, ...]
    overall: tuple[float, ...]
    keys: tuple[Key, ...]
    found: Found

    @property
    def rows(self) -> int:
        return len(self.keys)


def build(target: CommandTarget, measure: Measure, pairs: Sequence[Pair]) -> Series:
    """Match the rows of all runs. Raises Fault where the candidate's do not fit, SickIncumbent."""
    mine = [pair.incumbent.table for pair in pairs]
    theirs = [pair.candidate.table for pair in pairs]
    found = rows.find(target, mine, theirs)
    try:
        wanted = rows.keyed(mine[0], found.columns)
        own = [rows.keyed(table, found.columns) for table in mine]
        for run in own:
            rows.expect_same(wanted, run, found.columns, whose="its first run")
    except Fault as fault:
        raise SickIncumbent(fault) from None
    got = [rows.keyed(table, found.columns) for table in theirs]
    for run in got:
        rows.expect_same(wanted, run, found.columns)
    costs = {key: [(pair.incumbent.costs[one[key]], pair.candidate.costs[other[key]])
                   for pair, one, other in zip(pairs, own, got, strict=True)] for key in wanted}
    classes = tuple(_class(name, [costs[key] for key in keys], measure, target.scoring)
                    for name, keys in by_class(target, found, list(wanted)).items())
    everything = _class("all", list(costs.values()), measure, target.scoring)
    return Series(classes=classes, overall=everything.log_ratios, keys=tuple(wanted), found=found)


def by_class(target: CommandTarget, found: Found, keys: Sequence[Key]) -> dict[str, list[Key]]:
    """Return the rows by the class they are in: one each, or those that share `configs`."""
    if not target.configs:
        return {name: [key] for key, name in rows.labels(keys, found.columns).items()}
    named = classes.grouped(target.configs, found.columns, keys)
    return {name: [keys[row] for row in inside] for name, inside in named.items()}


def _class(name: str, costs: Sequence[Sequence[tuple[Costs, Costs]]], measure: Measure,
           scoring: Scoring) -> ClassSeries:
    """Return a class; `costs` are by row and pair, of incumbent and candidate, by metric."""
    whole = [[(measure.combined(one), measure.combined(other)) for one, other in row]
             for row in costs]
    pairs = range(len(whole[0]))
    by_metric = {metric.name: tuple(_ratio([(row[pair][0][place], row[pair][1][place])
                                            for row in costs], scoring) for pair in pairs)
                 for place, metric in enumerate(measure.metrics)}
    return ClassSeries(
        name=name, rows=len(costs), by_metric=by_metric if len(by_metric) > 1 else {},
        log_ratios=tuple(_ratio([row[pair] for row in whole], scoring) for pair in pairs),
        incumbent_us=together([median(one for one, _ in row) for row in whole], scoring),
        candidate_us=together([median(other for _, other in row) for row in whole], scoring))


def _ratio(costs: Sequence[tuple[float, float]], scoring: Scoring) -> float:
    """Return the log-ratio of some rows' costs in one pair."""
    if scoring == "total":
        return math.log(math.fsum(one for one, _ in costs) / math.fsum(two for _, two in costs))
    return fmean(math.log(one / two) for one, two in costs)


def together(costs: Sequence[float], scoring: Scoring) -> float:
    """Return some rows' cost as it is scored: their sum, or their geometric mean."""
    if scoring == "total":
        return math.fsum(costs)
    return math.exp(fmean(math.log(cost) for cost in costs))
