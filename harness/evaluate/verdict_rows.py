"""Turn errors and timings into a verdict's rows and weighted means."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from harness.case import Errors
from harness.correctness.tolerance import SMALL_VALUES
from harness.formats import quantities
from harness.roofline import ceilings, roofline
from harness.roofline.ceilings import Ceilings
from harness.roofline.roofline import Roofline
from harness.tasks.target import ConfigClass, Target
from harness.timing import outcome as compare
from harness.timing import stats
from harness.timing.paired_timing import ClassTiming
from harness.timing.plan import Plan
from harness.timing.stats import Estimate
from harness.verdict import FLOOR, INCUMBENT_FLOOR, ClassOutcome, Finding, LatencyKind, Row, Verdict


@dataclass(frozen=True, kw_only=True)
class EvaluationResults:
    """The results of one evaluation; `same`: candidate and incumbent run the same code."""

    target: Target
    plan: Plan
    errors: Mapping[str, Errors]
    timings: Mapping[str, ClassTiming]
    ceilings: Ceilings | None
    roofline: Roofline | None = None
    on_cpu: bool
    same: bool


def verdict(results: EvaluationResults) -> Verdict:
    """Return the verdict on a candidate that was checked, and timed if there are timings."""
    class_rows, findings = rows(results)
    return with_overall(Verdict(valid=True, correct=all(row.correct for row in class_rows),
                                rows=class_rows, audit=findings), results)


def rows(results: EvaluationResults) -> tuple[tuple[Row, ...], tuple[Finding, ...]]:
    """Return a row for each config class, and the findings of times below the physical floor."""
    class_rows = tuple(_row(results, config_class) for config_class in results.target.classes)
    return class_rows, tuple(filter(None, map(_floor_finding, class_rows)))


def _floor_finding(row: Row) -> Finding | None:
    """Return the finding of a time below the floor: a reject, or a flag if it is the incumbent's.
    """
    if row.floor_us is None or row.log_ratio is not None:
        return None
    detail = f"class {row.config_class}: {row.note}"
    return Finding(rule=FLOOR, severity="reject", detail=detail) if row.latency_us is None else \
        Finding(rule=INCUMBENT_FLOOR, severity="flag", detail=detail)


def with_overall(verdict: Verdict, results: EvaluationResults) -> Verdict:
    """Add the worst errors and, if every class was compared, the weighted geometric means.

    The classes share process pairs, and so their noise: see `stats.pooled`.
    """
    verdict = replace(
        verdict, max_abs_err=_largest(r.max_abs_err for r in verdict.rows),
        max_rel_err=_largest(r.max_rel_err for r in verdict.rows),
        error_budget_used=_largest(r.error_budget_used for r in verdict.rows))
    latencies = [row.latency_us for row in verdict.rows
                 if row.latency_us is not None and row.log_ratio is not None]
    if not verdict.correct or len(latencies) < len(verdict.rows):
        return verdict
    weights = [row.weight for row in verdict.rows]
    value = stats.pooled([results.timings[row.config_class].log_ratios for row in verdict.rows],
                         weights, results.plan.alpha_look)
    latency = stats.geometric_mean(latencies, weights)
    floor_us = stats.mean_of_all([row.floor_us for row in verdict.rows], weights)
    roofline_us = stats.mean_of_all([row.roofline_us for row in verdict.rows], weights)
    kind: LatencyKind = "measured-cpu" if results.on_cpu else "measured-gpu"
    return replace(
        verdict, latency_us=latency, latency_kind=kind, speedup=math.exp(value.mean),
        speedup_low=math.exp(value.low) if value.pairs > 1 else None,
        speedup_high=math.exp(value.high) if value.pairs > 1 else None,
        detectable_effect=stats.finite(value.detectable), floor_us=floor_us,
        roofline_us=roofline_us,
        pct_of_roofline=None if roofline_us is None else roofline.percent(roofline_us, latency))


def _row(results: EvaluationResults, config_class: ConfigClass) -> Row:
    row = Row(config_class=config_class.name, correct=False, weight=config_class.weight,
              core=config_class.core)
    errors = results.errors.get(config_class.name)
    if errors is None:
        return replace(row, note="not run: an earlier class failed")
    if errors.allowed is None:
        errors = errors.against([results.target.tolerance_of(config_class)], "the task's tolerance")
    row = replace(
        row, correct=errors.right, max_abs_err=errors.absolute, max_rel_err=errors.relative,
        error_budget_used=None if errors.used is None else stats.finite(errors.used),
        note=_error_note(errors, results.target),
        outcome="broken" if not errors.right else "tie" if results.same else "unmeasured")
    timing = results.timings.get(config_class.name)
    return row if timing is None or not errors.right or results.same else \
        _timed(results, config_class, row, timing)


def _timed(results: EvaluationResults, config_class: ConfigClass, row: Row,
           timing: ClassTiming) -> Row:
    value = stats.estimate(timing.log_ratios, results.plan.alpha_look)
    floor_us = None if results.ceilings is None else \
        ceilings.floor_us(results.ceilings, results.target, config_class)
    roofline_us = None if results.roofline is None else \
        results.roofline.point(results.target, config_class).us or None
    row = replace(row, floor_us=floor_us, roofline_us=roofline_us)
    if floor_us is not None and timing.candidate_us < floor_us:
        return replace(row, note=(
            f"{timing.candidate_us:.3g} us is below the physical floor of {floor_us:.3g} us; the "
            "latency is withheld"))
    row = replace(row, latency_us=timing.candidate_us, other_us=timing.other_us)
    if roofline_us is not None:
        row = replace(row, pct_of_roofline=roofline.percent(roofline_us, timing.candidate_us))
    if floor_us is not None and timing.incumbent_us < floor_us:
        return replace(row, note=(
            f"the incumbent's {timing.incumbent_us:.3g} us is below the physical floor of "
            f"{floor_us:.3g} us: it does not do the work, so nothing is compared with it"))
    alpha = results.plan.alpha_look
    again = stats.estimate(timing.again, alpha) if timing.again else None
    other = stats.estimate(timing.other_ratios, alpha) if timing.other_ratios else None
    outcome = compare.call_outcome(value, results.plan.margin, again=again, other=other)
    notes = (_remark(results, outcome, value, other), _capped(row))
    return replace(
        row, outcome=outcome, note="; ".join(filter(None, notes)),
        incumbent_us=timing.incumbent_us, incumbent_other_us=timing.incumbent_other_us,
        log_ratio=value.mean, low=stats.finite(value.low),
        high=stats.finite(value.high), stderr=stats.finite(value.stderr), pairs=value.pairs)


def _capped(row: Row) -> str:
    """Return a note if a latency is below the roofline: its percentage is capped at 100."""
    if row.latency_us is None or row.roofline_us is None or row.latency_us >= row.roofline_us:
        return ""
    return (f"{row.roofline_us:.3g} us at the measured rates: shown as 100 % of the roofline, "
            f"{100 * row.roofline_us / row.latency_us:.0f} % before the cap")


def _remark(results: EvaluationResults, outcome: ClassOutcome, value: Estimate,
            other: Estimate | None) -> str:
    """Return a note on a small gain, confirmed or not, or on a gain with a loss in the other time.
    """
    gain = f"{math.expm1(value.mean):.2%}"
    if compare.is_small_gain(value, results.plan.margin):
        return f"{gain} faster in two measurements in a row" if outcome == "faster" else \
            f"{gain} faster, but not confirmed by a second measurement"
    if other is not None and value.low > 0 and compare.other_time_disagrees(other):
        scored, rest = ("kernel", "call") if results.plan.score == "kernel" else ("call", "kernel")
        return f"{scored} time {quantities.change(value.mean)}, " \
            f"but {rest} time {quantities.change(other.mean)}"
    return ""


def _error_note(errors: Errors, target: Target) -> str:
    if errors.bad:
        return (f"{quantities.counted(errors.bad, 'value')} not finite; possible causes: "
                "an overflow, an element never written, a read outside the arrays")
    if errors.changed:
        return f"the inputs {', '.join(errors.changed)} were overwritten"
    if errors.used is None or errors.over is None:
        return "the error is not a number"
    if errors.basis == SMALL_VALUES:
        return f"error {errors.over:.0%} {SMALL_VALUES}"
    if errors.used > 1:
        names = target.output_names
        worst = 0 if len(names) == 1 else errors.worst
        prefix = "" if worst is None else "".join(f"{name}: " for name in names[worst:worst + 1])
        return (f"{prefix}error {errors.over:.2g} of the output's scale, "
                f"allowed {errors.allowed:.2g} ({errors.basis})")
    return ""


def _largest(values: Iterable[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)
