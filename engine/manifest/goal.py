"""Parse the manifest's `performance_target`, and check whether the best has reached it.

`1.5x`, `20%` and `20% less` are relative to the baseline; `850 us`, `>500 TFLOPS`, `1.2 TB/s` and
`>60% of peak` are absolute. Any other text is a note for people. So is a goal that verdicts on the
target cannot show, such as a benchmark's share of a peak.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from harness.benchmark.spec.command_target import CommandTarget
from harness.benchmark.spec.metric_units import ResolvedMetric, RowCost
from harness.tasks.target import Target
from harness.verdict import Verdict

Kind = Literal["speedup", "latency", "efficiency", "compute", "bandwidth"]
Form = Kind | Literal["less", "gain"]

_SIGN = re.compile(r"^\s*(?:>=?|<=?|≥|≤|=|at (?:least|most)|under|below|above|over)?\s*",
                   re.IGNORECASE)
_NUMBER = r"(?P<value>[+-]?\d+(?:\.\d+)?)\s*"
_UNITS = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6, "g": 1.0, "t": 1e3}
"""Factors to us, GFLOP/s or GB/s."""
_METRICS: dict[Kind, tuple[str, float]] = {
    "latency": ("us", 1.0), "compute": ("TFLOP", 1e3), "bandwidth": ("GB", 1.0)}
"""By kind of goal: the base unit of a benchmark's metrics, and its factor to the goal's unit."""
_FORMS: tuple[tuple[Form, str], ...] = (
    ("speedup", r"[x\u00d7](?: faster)?"),
    ("less", r"%\s*(?:less|lower|shorter)(?: time| latency)?"),
    ("efficiency", r"%\s*(?:of (?:the )?)?(?:roofline|peak(?: efficiency)?|efficiency)"),
    ("gain", r"%(?:\s*(?:faster|more|speedup))?"),
    ("latency", r"(?P<unit>ns|us|µs|μs|ms|s)"),
    ("compute", r"(?P<unit>[gt])flop(?:s|/s)"),
    ("bandwidth", r"(?P<unit>[gt])b(?:ps|/s)"),
)


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A goal that can be checked; `value` is a ratio, us, percent, GFLOP/s or GB/s by `kind`."""

    kind: Kind
    value: float
    text: str


def parse_goal(text: str) -> Goal | None:
    """Return the goal that a performance target states, None if it states none or no gain."""
    goal_text = _SIGN.sub("", text.strip(), count=1).strip().rstrip(".")
    for form, pattern in _FORMS:
        if match := re.fullmatch(_NUMBER + pattern, goal_text, re.IGNORECASE):
            return _goal(form, float(match["value"]), match.groupdict().get("unit") or "", text)
    return None


def _goal(form: Form, value: float, unit: str, text: str) -> Goal | None:
    kind: Kind = "speedup"
    match form:
        case "gain" if value < 0:  # -20% means 20 % less time
            value = 1 / (1 + value / 100) if value > -100 else 0.0
        case "gain":
            value = 1 + value / 100
        case "less":
            value = 1 / (1 - value / 100) if 0 < value < 100 else 0.0
        case "efficiency":
            kind, value = "efficiency", value if value <= 100 else 0.0
        case "latency" | "compute" | "bandwidth":
            kind, value = form, value * _UNITS[unit.lower()]
    if value <= (1.0 if kind == "speedup" else 0.0):
        return None
    return Goal(kind=kind, value=value, text=text.strip())


def is_checkable(goal: Goal, target: Target | CommandTarget) -> bool:
    """Return whether verdicts on a target can show that a goal is reached."""
    if isinstance(target, CommandTarget):
        return goal.kind == "speedup" or bool(_metrics_of(goal.kind, RowCost(target)))
    return goal.kind != "compute" or bool(target.flops)


def reached_by(goal: Goal, best: Verdict | None, target: Target | CommandTarget) -> str:
    """Return what the best has reached for sure, "" if that is less than the goal.

    `best` is its verdict against the baseline. The lower end of the speedup's interval counts; any
    other value is made worse by the ratio of that end to the speedup.
    """
    if best is None or best.latency_us is None or not best.speedup or best.speedup_low is None:
        return ""
    certainty = best.speedup_low / best.speedup
    if goal.kind == "speedup":
        value, unit = best.speedup_low, "x"
    elif goal.kind == "efficiency":
        shares = [row.pct_of_roofline for row in best.rows]
        known = [share for share in shares if share is not None]
        if not known or len(known) < len(shares):
            return ""
        value, unit = min(known) * certainty, "% of the roofline"
    else:
        measured = _of_kernel(goal.kind, best, target) if isinstance(target, Target) else \
            _of_benchmark(goal.kind, best, target)
        if measured is None:
            return ""
        if goal.kind == "latency":
            latency_us = measured / certainty
            return f"at most {latency_us:.4g} us" if latency_us <= goal.value else ""
        value, unit = measured * certainty, " GFLOP/s" if goal.kind == "compute" else " GB/s"
    return f"at least {value:.4g}{unit}" if value >= goal.value else ""


def _of_kernel(kind: Kind, best: Verdict, target: Target) -> float | None:
    """Return microseconds, GFLOP/s or GB/s; None if the work or time of a class is unknown."""
    if kind == "latency":
        return best.latency_us
    works = [target.work(target.config_class(row.config_class)) for row in best.rows]
    return _mean(best, [
        (flops if kind == "compute" else moved) / row.latency_us / 1e3 if row.latency_us else 0.0
        for row, (flops, moved) in zip(best.rows, works, strict=True)])


def _of_benchmark(kind: Kind, best: Verdict, target: CommandTarget) -> float | None:
    """Return microseconds, GFLOP/s or GB/s from the benchmark's own columns; None without them.

    Only metrics of the goal's unit count. If the score contains no others, the score's own number
    is returned: for a step their sum, for rates all work over all time. Otherwise the worst of
    these metrics is returned. Rows are combined by their weighted geometric mean.
    """
    row_cost = RowCost(target)
    metrics = _metrics_of(kind, row_cost)
    if not metrics:
        return None
    if set(row_cost.scored) <= set(metrics):
        is_total = target.scoring == "total"
        cost = _mean(best, [(row.latency_us or 0.0) / (row.weight if is_total else 1.0)
                            for row in best.rows])
        work = math.fsum(metric.weight for metric in row_cost.scored) if row_cost.is_step else 1.0
    else:
        costs = {cost.metric: cost.value for cost in best.costs}
        known = [costs[metric.name] for metric in metrics if metric.name in costs]
        cost, work = (max(known) if len(known) == len(metrics) else None), 1.0
    if cost is None or kind == "latency":
        return cost
    return 1e6 * work / cost * _METRICS[kind][1]


def _metrics_of(kind: Kind, row_cost: RowCost) -> list[ResolvedMetric]:
    """Return the metrics that a kind of goal is about; none is a share of a peak."""
    base, _ = _METRICS.get(kind, ("", 1.0))
    return [metric for metric in row_cost.metrics
            if metric.base == base and metric.is_rate == (kind != "latency")]


def _mean(best: Verdict, values: Sequence[float]) -> float | None:
    """Return the geometric mean over the classes by weight; None if a class lacks its value."""
    weight = math.fsum(row.weight for row in best.rows)
    if not weight or not all(values):
        return None
    return math.exp(math.fsum(row.weight * math.log(value) for row, value
                              in zip(best.rows, values, strict=True)) / weight)
