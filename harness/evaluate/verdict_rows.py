"""From errors and timings to the rows of a verdict, and to its weighted means."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from harness.case import Errors
from harness.roofline import roofline
from harness.roofline.roofline import Ceilings
from harness.target import ConfigClass, Target
from harness.timing import outcome as compare
from harness.timing import stats
from harness.timing.paired_timing import ClassTiming
from harness.timing.plan import Plan
from harness.timing.stats import Estimate
from harness.verdict import ClassOutcome, Finding, LatencyKind, Row, Verdict

FLOOR = "physical-floor"
"""The rule of a finding that the candidate is faster than anything can be."""
INCUMBENT_FLOOR = "incumbent-floor"
"""The rule of a finding that the incumbent is: nothing can be compared with it."""


@dataclass(frozen=True, kw_only=True)
class EvaluationResults:
    """What one evaluation has seen, by config class; `same` if both sides run the same code."""

    target: Target
    plan: Plan
    errors: Mapping[str, Errors]
    timings: Mapping[str, ClassTiming]
    ceilings: Ceilings | None
    on_cpu: bool
    same: bool


def rows(seen: EvaluationResults) -> tuple[tuple[Row, ...], tuple[Finding, ...]]:
    """Return a row for each config class, and what was found below the physical floor."""
    made = tuple(_row(seen, config_class) for config_class in seen.target.classes)
    return made, tuple(filter(None, map(_found, made)))


def _found(row: Row) -> Finding | None:
    """A candidate below the floor is rejected; for the incumbent's time it is not to blame."""
    if row.bound_us is None or row.log_ratio is not None:
        return None
    detail = f"class {row.config_class}: {row.note}"
    return Finding(rule=FLOOR, severity="reject", detail=detail) if row.latency_us is None else \
        Finding(rule=INCUMBENT_FLOOR, severity="flag", detail=detail)


def with_overall(verdict: Verdict, seen: EvaluationResults) -> Verdict:
    """Add the worst errors and, if every class was compared, the weighted geometric means.

    Pairs are shared by the classes, and so is their noise; see `stats.pooled`.
    """
    verdict = replace(
        verdict, max_abs_err=_most(r.max_abs_err for r in verdict.rows),
        max_rel_err=_most(r.max_rel_err for r in verdict.rows),
        error_budget_used=_most(r.error_budget_used for r in verdict.rows))
    latencies = [row.latency_us for row in verdict.rows
                 if row.latency_us is not None and row.log_ratio is not None]
    if not verdict.correct or len(latencies) < len(verdict.rows):
        return verdict
    weights = [row.weight for row in verdict.rows]
    value = stats.pooled([seen.timings[row.config_class].log_ratios for row in verdict.rows],
                         weights, seen.plan.alpha_look)
    latency = _geometric(latencies, weights)
    bounds = [row.bound_us for row in verdict.rows if row.bound_us]
    bound = _geometric(bounds, weights) if len(bounds) == len(verdict.rows) else None
    kind: LatencyKind = "measured-cpu" if seen.on_cpu else "measured-gpu"
    return replace(
        verdict, latency_us=latency, latency_kind=kind, speedup=math.exp(value.mean),
        speedup_low=math.exp(value.low) if value.pairs > 1 else None,
        speedup_high=math.exp(value.high) if value.pairs > 1 else None,
        detectable_effect=_finite(value.detectable), bound_us=bound,
        pct_of_roofline=roofline.pct_of_roofline(bound, latency) if bound else None)


def _row(seen: EvaluationResults, config_class: ConfigClass) -> Row:
    row = Row(config_class=config_class.name, correct=False, weight=config_class.weight,
              core=config_class.core)
    errors = seen.errors.get(config_class.name)
    if errors is None:
        return replace(row, note="not run: an earlier class failed")
    if errors.allowed is None:
        errors = errors.against([seen.target.tolerance_of(config_class)], "the task's tolerance")
    right = errors.right
    row = replace(
        row, correct=right, max_abs_err=errors.absolute, max_rel_err=errors.relative,
        error_budget_used=None if errors.used is None else _finite(errors.used),
        note=_complaint(errors),
        outcome="broken" if not right else "tie" if seen.same else "unmeasured")
    timing = seen.timings.get(config_class.name)
    return row if timing is None or not right or seen.same else \
        _timed(seen, config_class, row, timing)


def _timed(seen: EvaluationResults, config_class: ConfigClass, row: Row,
           timing: ClassTiming) -> Row:
    value = stats.estimate(timing.log_ratios, seen.plan.alpha_look)
    bound = None if seen.ceilings is None else \
        roofline.bound_us(seen.ceilings, seen.target, config_class)
    if bound is not None and timing.candidate_us < bound:
        return replace(row, bound_us=bound, note=(
            f"{timing.candidate_us:.3g} us is below the physical floor of {bound:.3g} us; the "
            "latency is withheld"))
    reached = None if bound is None else roofline.pct_of_roofline(bound, timing.candidate_us)
    if bound is not None and timing.incumbent_us < bound:
        return replace(
            row, latency_us=timing.candidate_us, other_us=timing.other_us, bound_us=bound,
            pct_of_roofline=reached, note=(
                f"the incumbent's {timing.incumbent_us:.3g} us is below the physical floor of "
                f"{bound:.3g} us: it does not do the work, nothing is compared with it"))
    alpha = seen.plan.alpha_look
    again = stats.estimate(timing.again, alpha) if timing.again else None
    other = stats.estimate(timing.other_ratios, alpha) if timing.other_ratios else None
    outcome = compare.call_outcome(value, seen.plan.margin, again=again, other=other)
    return replace(
        row, outcome=outcome, note=_remark(seen, outcome, value, other),
        latency_us=timing.candidate_us, incumbent_us=timing.incumbent_us,
        other_us=timing.other_us, incumbent_other_us=timing.incumbent_other_us,
        log_ratio=value.mean, low=_finite(value.low),
        high=_finite(value.high), stderr=_finite(value.stderr), pairs=value.pairs, bound_us=bound,
        pct_of_roofline=reached)


def _remark(seen: EvaluationResults, outcome: ClassOutcome, value: Estimate,
            other: Estimate | None) -> str:
    """Say what the numbers of a row do not: a small gain that held, times that disagree."""
    gain = f"{math.expm1(value.mean):.2%}"
    if compare.is_small_gain(value, seen.plan.margin):
        return f"{gain} faster in two measurements in a row" if outcome == "faster" else \
            f"{gain} faster, but not twice in a row"
    if other is not None and value.low > 0 and compare.other_time_disagrees(other):
        scored, rest = ("kernel", "wall") if seen.plan.score == "kernel" else ("wall", "kernel")
        return f"{gain} less {scored} time, but {math.expm1(-other.mean):.2%} more {rest} time"
    return ""


def _complaint(errors: Errors) -> str:
    if errors.bad:
        return f"{errors.bad} values are not finite or were never written"
    if errors.changed:
        return f"the inputs {', '.join(errors.changed)} were overwritten"
    if errors.used is None or errors.over is None:
        return "the error is not a number"
    if errors.used > 1:
        return (f"error {errors.over:.2g} of the output's scale, allowed {errors.allowed:.2g} "
                f"({errors.basis})")
    return ""


def _most(values: Iterable[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _geometric(values: list[float], weights: list[float]) -> float:
    return math.exp(stats.weighted_mean([math.log(v) for v in values], weights))
