"""How many runs are enough: when to stop, when to go from quick to full, when to measure again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from harness.benchmark.runs.run_pairs import ClassSeries, Series
from harness.timing import outcome as compare
from harness.timing import stats
from harness.timing.outcome import SURE
from harness.timing.plan import Plan
from harness.timing.stats import Estimate
from harness.verdict import ClassOutcome

LOOKS = (3, 4, 6, 9, 13)
"""Pairs of whole runs after which a measurement may stop."""
LEAST = 3
"""Pairs of any measurement, and of any repetition."""
LOST = 0.05
"""A class that loses so much is never kept."""
AGAIN = 0.02
"""A smaller gain must be seen a second time."""


def plan_for(plan: Plan, most: int | None = None) -> Plan:
    """Return the plan with looks for whole runs, at most so many pairs and never fewer than 3."""
    looks = tuple(n for n in LOOKS if most is None or n <= most)
    return replace(plan, looks=looks or LOOKS[:1])


def at_least(looks: Sequence[int]) -> tuple[int, ...]:
    """Return the looks that have pairs enough."""
    return tuple(n for n in looks if n >= LEAST) or (LEAST,)


def estimates(series: Series, plan: Plan) -> tuple[Estimate, list[Estimate]]:
    """Return what the pairs say of the whole table, and of each class."""
    return (stats.estimate(series.overall, plan.alpha_look),
            [stats.estimate(one.log_ratios, plan.alpha_look) for one in series.classes])


def enough(series: Series, plan: Plan) -> bool:
    """Tell whether more pairs could hardly change a verdict, or one class has clearly lost."""
    overall, classes = estimates(series, plan)
    if any(one.at(SURE / 5)[1] < -5 * math.log1p(plan.tolerance) for one in classes):
        return True
    return all(compare.is_settled(one, plan.margin, plan.tolerance) for one in (overall, *classes))


def upgrade(series: Series, plan: Plan) -> bool:
    """Tell whether what the quick command says is left to the full one: whatever may be a gain, as
    rows outside it may lose. It decides alone what is none, over all of its rows and in no class.
    """
    overall, classes = estimates(series, plan)
    hopeless = any(one.at(SURE)[1] < 0 and one.mean <= -math.log1p(LOST) for one in classes)
    return overall.mean > 0 or any(
        one.low > 0 or (one.mean > 0 and one.at(SURE)[1] >= math.log1p(plan.margin)
                        and not hopeless) for one in classes)


def repeat(series: Series, plan: Plan) -> bool:
    """Tell whether some gain is certain and so small that it must be seen again."""
    overall, classes = estimates(series, plan)
    return any(_slight(one) for one in (overall, *classes))


def outcome(series: ClassSeries, plan: Plan, again: ClassSeries | None) -> tuple[ClassOutcome, str]:
    """Return faster, tie or slower, and what is to be said of it.

    A gain under 2 % counts if the repetition is sure of one at the ordinary 5 %.
    """
    value = stats.estimate(series.log_ratios, plan.alpha_look)
    second = None if again is None else stats.estimate(again.log_ratios, SURE)
    found = compare.call_outcome(value, plan.margin, again=second)
    if not _slight(value):
        return found, _apart(series, plan)
    if not _held(second):
        found = "tie"
    return found, _repeated(value, second, "faster")


def overall(series: Series, plan: Plan, again: Series | None) -> tuple[Estimate, str]:
    """Return what the pairs say of the whole table, and what is to be said of a gain under 2 %: one
    that the repetition is not sure of is none, and the interval reaches as low as it says.
    """
    value = stats.estimate(series.overall, plan.alpha_look)
    second = None if again is None else stats.estimate(again.overall, SURE)
    if not _slight(value):
        return value, ""
    low = value.low if _held(second) else min(0.0, second.low if second else 0.0)
    return replace(value, low=low), _repeated(value, second, "faster over all rows")


def _held(second: Estimate | None) -> TypeGuard[Estimate]:
    return second is not None and second.low > 0


def _repeated(value: Estimate, second: Estimate | None, words: str) -> str:
    """Say of a small gain what became of it when it was measured again."""
    seen = f"and {math.expm1(second.mean):.2%}" if _held(second) else "but not"
    return f"{math.expm1(value.mean):.2%} {words}, {seen} when it was measured again"


def _slight(value: Estimate) -> bool:
    return value.pairs > 1 and value.low > 0 and value.mean < math.log1p(AGAIN)


def _apart(series: ClassSeries, plan: Plan) -> str:
    """Name the metrics that have become worse for sure, whatever became of the rest."""
    lost = []
    for name, ratios in series.by_metric.items():
        value = stats.estimate(ratios, SURE)
        if value.pairs > 1 and value.high < 0 and value.mean < -math.log1p(plan.tolerance):
            lost.append(f"{name} is {math.expm1(-value.mean):.1%} worse")
    return "; ".join(lost)
