"""Compare an absolute goal (a time, TFLOPS or GB/s) with a benchmark's own columns.

The goal is compared with the metrics of its unit. If the score consists of these alone, the
score's own number counts: for a step their sum, for rates all work over all time. Otherwise each
metric counts separately, and the worst decides. Rows are combined by their weighted geometric mean.
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
"""The base of a kind's metrics, and the factor from it to the goal's us, GFLOP/s or GB/s."""


def has_metric(kind: Kind, target: CommandTarget) -> bool:
    """Return whether the target has a metric of a kind; no metric is a share of a peak."""
    return bool(_metrics_of(kind, RowCost(target)))


def measured_value(kind: Kind, best: Verdict, target: CommandTarget) -> float | None:
    """Return microseconds, GFLOP/s or GB/s; None if the verdict does not have them."""
    row_cost = RowCost(target)
    metrics = _metrics_of(kind, row_cost)
    if not metrics:
        return None
    if set(row_cost.scored) <= set(metrics):
        cost = _score(best, target)
        work = math.fsum(metric.weight for metric in row_cost.scored) if row_cost.is_step else 1.0
    else:
        costs = {cost.metric: cost.value for cost in best.costs}
        known = [costs[metric.name] for metric in metrics if metric.name in costs]
        cost, work = (max(known) if len(known) == len(metrics) else None), 1.0
    if cost is None or kind == "latency":
        return cost
    return 1e6 * work / cost * _BASES[kind][1]


def _metrics_of(kind: Kind, row_cost: RowCost) -> list[ResolvedMetric]:
    base, _ = _BASES.get(kind, ("", 1.0))
    return [metric for metric in row_cost.metrics
            if metric.base == base and metric.is_rate == (kind != "latency")]


def _score(best: Verdict, target: CommandTarget) -> float | None:
    total = weight = 0.0
    for row in best.rows:
        if row.latency_us is None:
            return None
        cost = row.latency_us / row.weight if target.scoring == "total" else row.latency_us
        total += row.weight * math.log(cost)
        weight += row.weight
    return math.exp(total / weight) if weight else None
