"""Report the cost of each metric: the score combines several into one number, or omits some."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from statistics import median

from harness.benchmark.runs import row_keys
from harness.benchmark.verdict.benchmark_rows import ModeResults
from harness.timing.stats import weighted_mean
from harness.verdict import Cost, Evidence


def metric_costs(results: ModeResults) -> Iterator[Cost]:
    """Yield the candidate's cost of each of several metrics: the weighted geometric mean of rows.
    """
    if len(results.row_cost.metrics) < 2:
        return
    series = results.series
    runs = [(pair.candidate.costs,
             row_keys.rows_by_key(pair.candidate.table, series.config.columns))
            for pair in results.pairs]
    for at, metric in enumerate(results.row_cost.metrics):
        logs = [math.log(median(costs[rows[key]][at] for costs, rows in runs))
                for key in series.keys]
        yield Cost(metric=metric.name, value=math.exp(weighted_mean(logs, series.shares.of)),
                   unit=f"us per {metric.base}" if metric.is_rate else metric.base,
                   scored=metric.weight > 0)


def cost_evidence(costs: Iterable[Cost]) -> Iterator[Evidence]:
    """Yield the costs in words."""
    for cost in costs:
        yield Evidence(kind="metric", detail=f"{cost.value:.9g} {cost.unit} by {cost.metric}"
                                             f"{'' if cost.scored else ', which is shown only'}")
