"""What a benchmark's own columns say of an absolute target: a time, TFLOPS or GB/s.

The target is compared with the metrics of its unit. Where these alone make the score it is the
score's own number: their sum over a step, forward and backward, of rates all work over all time.
Else each of them counts for itself, the worst of several. Over rows it is the geometric mean, by
their weight.
"""

from __future__ import annotations

import math
from typing import Literal

from harness.benchmark.spec.command_target import CommandTarget
from harness.benchmark.spec.metric_units import ResolvedMetric, RowCost
from harness.verdict import Verdict

Kind = Literal["latency", "compute", "bandwidth", "efficiency"]

_BASES: dict[str, tuple[str, float]] = {
    "latency": ("us", 1.0), "compute": ("TFLOP", 1e3), "bandwidth": ("GB", 1.0)}
"""What the metrics of a kind count, and how much of its unit that is: of GFLOP/s and GB/s."""


def named(kind: Kind, target: CommandTarget) -> bool:
    """Tell whether some metric is of that kind; none is a share of a peak."""
    return bool(_of(kind, RowCost(target)))


def value(kind: Kind, best: Verdict, target: CommandTarget) -> float | None:
    """Return microseconds, GFLOP/s or GB/s; None where the verdict does not say it."""
    measure = RowCost(target)
    wanted = _of(kind, measure)
    if not wanted:
        return None
    if set(measure.scored) <= set(wanted):
        cost = _score(best, target)
        work = math.fsum(metric.weight for metric in measure.scored) if measure.step else 1.0
    else:
        costs = {one.metric: one.value for one in best.costs}
        known = [costs[metric.name] for metric in wanted if metric.name in costs]
        cost, work = (max(known) if len(known) == len(wanted) else None), 1.0
    if cost is None or kind == "latency":
        return cost
    return 1e6 * work / cost * _BASES[kind][1]


def _of(kind: Kind, measure: RowCost) -> list[ResolvedMetric]:
    base, _ = _BASES.get(kind, ("", 1.0))
    return [metric for metric in measure.metrics
            if metric.base == base and metric.rate == (kind != "latency")]


def _score(best: Verdict, target: CommandTarget) -> float | None:
    total = weight = 0.0
    for row in best.rows:
        if row.latency_us is None:
            return None
        cost = row.latency_us / row.weight if target.scoring == "total" else row.latency_us
        total += row.weight * math.log(cost)
        weight += row.weight
    return math.exp(total / weight) if weight else None
