"""What each of several metrics came to: the score has one number for them, or leaves some out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from harness.reported import rows
from harness.reported.summary import Seen
from harness.stats import weighted_mean
from harness.verdict import Evidence, Verdict

KIND = "metric"
"""Of the evidence."""
_SHOWN = ", which is shown only"


def evidence(seen: Seen) -> Iterator[Evidence]:
    """Yield each metric's cost to the candidate, the geometric mean over rows by their weight."""
    if len(seen.measure.metrics) < 2:
        return
    series = seen.series
    runs = [(pair.candidate.costs, rows.keyed(pair.candidate.table, series.found.columns))
            for pair in seen.pairs]
    for at, metric in enumerate(seen.measure.metrics):
        logs = [math.log(median(costs[places[key]][at] for costs, places in runs))
                for key in series.keys]
        unit = f"us per {metric.base}" if metric.rate else metric.base
        cost = math.exp(weighted_mean(logs, series.shares.of))
        yield Evidence(kind=KIND, detail=(
            f"{cost:.9g} {unit} by {metric.name}{'' if metric.weight else _SHOWN}"))


def cost_of(verdict: Verdict, name: str) -> float | None:
    """Return what a metric's evidence says, None where there is none."""
    for one in verdict.evidence:
        told, by, metric = one.detail.partition(" by ")
        if one.kind == KIND and by and metric.removesuffix(_SHOWN) == name:
            return float(told.split()[0])
    return None
