"""Decide how many runs are enough: when to stop, repeat, or go on to the full benchmark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from harness.benchmark.runs.run_pairs import ClassSeries, Series
from harness.timing import outcome as timing_outcome
from harness.timing import stats
from harness.timing.outcome import SURE
from harness.timing.plan import Plan
from harness.timing.stats import Estimate
from harness.verdict import ClassOutcome

LOOKS = (3, 4, 6, 9, 13)
"""Pairs of whole runs after which a measurement may stop."""
LEAST_PAIRS = 3
"""Least number of pairs of a measurement and of a repetition."""
HEAVY_LOSS = 0.05
"""A candidate with a class that loses this share or more is never kept."""
SMALL_GAIN = 0.02
"""A smaller gain must be measured a second time."""


def plan_for(plan: Plan, most: int | None = None) -> Plan:
    """Return the plan with looks for whole runs: at most `most` pairs, and never fewer than 3."""
    of_effort = {"quick": LOOKS[:2], "normal": LOOKS, "thorough": (*LOOKS, 18)}[plan.effort]
    looks = tuple(n for n in of_effort if most is None or n <= most)
    return replace(plan, looks=looks or LOOKS[:1])


def looks_with_enough_pairs(looks: Sequence[int]) -> tuple[int, ...]:
    """Return the looks after LEAST_PAIRS or more; never none."""
    return tuple(n for n in looks if n >= LEAST_PAIRS) or (LEAST_PAIRS,)


def estimates(series: Series, plan: Plan) -> tuple[Estimate, list[Estimate]]:
    """Return the estimates of the whole table and of each class."""
    return (stats.estimate(series.overall, plan.alpha_look),
            [stats.estimate(entry.log_ratios, plan.alpha_look) for entry in series.classes])


def is_enough(series: Series, plan: Plan) -> bool:
    """Return whether more pairs would hardly change the verdict, or one class has clearly lost."""
    overall, classes = estimates(series, plan)
    return any(timing_outcome.is_lost(estimate, plan.tolerance) for estimate in classes) or all(
        timing_outcome.is_settled(estimate, plan.margin, plan.tolerance)
        for estimate in (overall, *classes))


def needs_full_benchmark(series: Series, plan: Plan) -> bool:
    """Return whether a quick result needs the full command: every possible gain does."""
    overall, classes = estimates(series, plan)
    has_heavy_loss = any(estimate.at(SURE)[1] < 0 and estimate.mean <= -math.log1p(HEAVY_LOSS)
                         for estimate in classes)
    return overall.mean > 0 or any(
        estimate.low > 0 or (not has_heavy_loss and estimate.mean > 0
                             and estimate.at(SURE)[1] >= math.log1p(plan.margin))
        for estimate in classes)


def needs_repetition(series: Series, plan: Plan) -> bool:
    """Return whether some gain is significant and so small that it must be measured again."""
    overall, classes = estimates(series, plan)
    return any(timing_outcome.is_small_gain(estimate, SMALL_GAIN)
               for estimate in (overall, *classes))


def class_outcome(series: ClassSeries, plan: Plan,
                  repetition: ClassSeries | None) -> tuple[ClassOutcome, str]:
    """Return a class's outcome and a note; a gain under 2 % must show in the repetition."""
    value = stats.estimate(series.log_ratios, plan.alpha_look)
    second = None if repetition is None else stats.estimate(repetition.log_ratios, SURE)
    outcome = timing_outcome.call_outcome(value, plan.margin, again=second)
    if not timing_outcome.is_small_gain(value, SMALL_GAIN):
        return outcome, _worse_metrics(series, plan)
    return outcome if _is_confirmed(second) else "tie", _repetition_note(value, second, "faster")


def overall_estimate(series: Series, plan: Plan,
                     repetition: Series | None) -> tuple[Estimate, str]:
    """Return the table's estimate and a note; `low` is <= 0 if a small gain is not confirmed."""
    value = stats.estimate(series.overall, plan.alpha_look)
    second = None if repetition is None else stats.estimate(repetition.overall, SURE)
    if not timing_outcome.is_small_gain(value, SMALL_GAIN):
        return value, ""
    low = value.low if _is_confirmed(second) else min(0.0, second.low if second else 0.0)
    return replace(value, low=low), _repetition_note(value, second, "faster over all rows")


def _is_confirmed(second: Estimate | None) -> TypeGuard[Estimate]:
    return second is not None and second.low > 0


def _repetition_note(value: Estimate, second: Estimate | None, words: str) -> str:
    """Return in words whether a small gain was there when it was measured again."""
    repeated = f"and {math.expm1(second.mean):.2%}" if _is_confirmed(second) else "but not"
    return f"{math.expm1(value.mean):.2%} {words}, {repeated} when it was measured again"


def _worse_metrics(series: ClassSeries, plan: Plan) -> str:
    """Return the metrics that have become significantly worse, in words."""
    worse = []
    for name, ratios in series.by_metric.items():
        value = stats.estimate(ratios, SURE)
        if value.pairs > 1 and value.high < 0 and value.mean < -math.log1p(plan.tolerance):
            worse.append(f"{name} is {math.expm1(-value.mean):.1%} worse")
    return "; ".join(worse)
