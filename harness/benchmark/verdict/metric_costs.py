"""What each of several metrics came to: the score has one number for them, or leaves some out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from statistics import median

from harness.benchmark.runs import row_keys
from harness.benchmark.verdict.benchmark_rows import ModeResults
from harness.timing.stats import weighted_mean
from harness.verdict import Cost, Evidence


def costs(seen: ModeResults) -> Iterator[Cost]:
    """Yield each metric's cost to the candidate, the geometric mean over rows by their weight."""
    if len(seen.measure.metrics) < 2:
        return
    series = seen.series
    runs = [(pair.candidate.costs, row_keys.keyed(pair.candidate.table, series.found.columns))
            for pair in seen.pairs]
    for at, metric in enumerate(seen.measure.metrics):
        logs = [math.log(median(costs[places[key]][at] for costs, places in runs))
                for key in series.keys]
        yield Cost(metric=metric.name, value=math.exp(weighted_mean(logs, series.shares.of)),
                   unit=f"us per {metric.base}" if metric.is_rate else metric.base,
                   scored=metric.weight > 0)


def evidence(costs: Iterable[Cost]) -> Iterator[Evidence]:
    """Yield the costs in words."""
    for one in costs:
        yield Evidence(kind="metric", detail=f"{one.value:.9g} {one.unit} by {one.metric}"
                                             f"{'' if one.scored else ', which is shown only'}")
