"""Turn the pairs of one mode into the rows, the score and the notes of a verdict."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from harness.benchmark.runs import row_keys, stopping_rule
from harness.benchmark.runs.result_table import FailedRow
from harness.benchmark.runs.run_pairs import ClassSeries, RunPair, Series, combine_costs
from harness.benchmark.spec.command_target import BenchmarkMode, CommandTarget
from harness.benchmark.spec.metric_units import RowCost
from harness.call_trace import weights
from harness.errors import KoptError
from harness.formats import quantities
from harness.formats.text import plain
from harness.timing import stats
from harness.timing.plan import Plan
from harness.verdict import SCORE, Cost, Evidence, Finding, Row, Verdict

MOST_CHARACTERS = 200
"""Length limit of a class's name, and of a shape's."""
PER = "us per "
"""Prefix of the unit of a rate's cost."""
MOST_SHAPES = 32
"""Most shapes that a class's row names; a class with more names none."""


class IncorrectCandidate(KoptError):
    """A row of the candidate fails its check, so that the candidate is incorrect."""

    exit_code = 1

    def __init__(self, failure: FailedRow, name: str, rows: int) -> None:
        super().__init__(f"row {name}: {failure.what}")
        self.name, self.complaint, self.rows = name, failure.what, rows


@dataclass(frozen=True, kw_only=True)
class ModeResults:
    """The measurements of one mode, and of its repetition if there was one."""

    target: CommandTarget
    row_cost: RowCost
    plan: Plan
    mode: BenchmarkMode
    pairs: Sequence[RunPair]
    series: Series
    repetition: Series | None = None


def verdict_of(results: ModeResults) -> Verdict:
    """Return the verdict on a candidate whose rows all pass their checks."""
    return score(Verdict(valid=True, correct=True, evidence=tuple(_evidence(results)),
                         audit=tuple(run_findings(results))), results)


def score(verdict: Verdict, results: ModeResults) -> Verdict:
    """Return a verdict with the rows, the speedup and the score of some results."""
    series = results.series
    estimate, note = stopping_rule.overall_estimate(series, results.plan, results.repetition)
    repetitions = {again.name: again for again in results.repetition.classes} \
        if results.repetition else {}
    costs_us = [entry.candidate_us for entry in series.classes]
    latency_us = math.fsum(costs_us) if results.target.scoring == "total" else \
        combine_costs(costs_us, "geometric", [entry.weight for entry in series.classes])
    has_interval = estimate.pairs > 1
    per = "" if verdict.by_kernel_time else RowCost(results.target).per
    return replace(
        verdict, latency_us=latency_us, latency_kind="reported",
        rows=tuple(replace(_row(results, entry, repetitions.get(entry.name)), latency_per=per)
                   for entry in series.classes),
        speedup=math.exp(estimate.mean),
        speedup_low=math.exp(estimate.low) if has_interval else None,
        speedup_high=math.exp(estimate.high) if has_interval else None,
        detectable_effect=stats.finite(estimate.detectable),
        evidence=(*verdict.evidence, _score(results, estimate.mean)),
        notes=(*verdict.notes, *([note] if note else []), *_notes(results.target, series)))


def incorrect_verdict(failure: IncorrectCandidate) -> Verdict:
    """Return the verdict on a candidate with a failing row: its score is 0 despite gains."""
    row = Row(config_class=plain(failure.name, MOST_CHARACTERS), correct=False, outcome="broken",
              note=failure.complaint)
    return Verdict(valid=True, correct=False, rejected_reason=failure.what, rows=(row,),
                   evidence=(Evidence(kind=SCORE, detail=(
                       f"0: {failure.rows} rows fail" if failure.rows > 1 else
                       "0: a row fails")),))


def _row(results: ModeResults, series: ClassSeries, repetition: ClassSeries | None) -> Row:
    value = stats.estimate(series.log_ratios, results.plan.alpha_look)
    outcome, note = stopping_rule.class_outcome(series, results.plan, repetition)
    columns = results.series.config.columns
    shapes = [plain(weights.label(columns, key), MOST_CHARACTERS) for key in series.keys] \
        if len(series.keys) <= MOST_SHAPES else []
    return Row(config_class=plain(series.name, MOST_CHARACTERS), correct=True, outcome=outcome,
               note=note, latency_us=series.candidate_us, incumbent_us=series.incumbent_us,
               log_ratio=value.mean, low=stats.finite(value.low), high=stats.finite(value.high),
               stderr=stats.finite(value.stderr), pairs=value.pairs, weight=series.weight,
               core=series.name in results.target.core, shapes=tuple(shapes))


def rewritten(names: Collection[str]) -> tuple[Finding, ...]:
    """Return the flag for files of the tree that only the candidate's runs have written."""
    if not names:
        return ()
    listed = quantities.listed([plain(name, MOST_CHARACTERS) for name in sorted(names)], 3)
    return (Finding(rule="rewritten", severity="flag", detail=(
        f"its runs write to {listed}, which the incumbent's do not: later runs do not use the "
        "files as submitted")),)


def run_findings(results: ModeResults) -> Iterator[Finding]:
    """Yield anomalies of the runs that a person should look at."""
    for name in results.series.config.unsteady:
        yield Finding(rule="reported", severity="flag", detail=(
            f"the column {name!r} is the same in all runs of the incumbent, but not of the "
            "candidate; it was not used to distinguish rows"))
    for side in ("incumbent", "candidate"):
        hashes = [getattr(pair, side).table.sha256 for pair in results.pairs]
        if len(set(hashes)) < len(hashes):
            yield Finding(rule="reported", severity="flag" if side == "candidate" else "note",
                          detail=f"{len(hashes)} runs of the {side} wrote only {len(set(hashes))} "
                                 "different files: times are rounded, stored or invented")


def _evidence(results: ModeResults) -> Iterator[Evidence]:
    seconds = {side: median(getattr(pair, side).wall_s for pair in results.pairs)
               for side in ("incumbent", "candidate")}
    yield Evidence(kind="runs", detail=(
        f"{len(results.pairs)} pairs of whole runs of the {results.mode.name} benchmark, "
        f"{len(results.series.keys)} rows; by kopt's own clock a run of the incumbent takes "
        f"{seconds['incumbent']:.3g} s, one of the candidate {seconds['candidate']:.3g} s"))
    yield Evidence(kind="columns", detail=(
        f"rows are distinguished by {', '.join(results.series.config.columns) or 'nothing'}"))


def _score(results: ModeResults, mean: float) -> Evidence:
    how = "geometric mean" if results.target.scoring == "geometric" else "total"
    is_weighted = results.target.weights is not None and not results.series.shares.names_none
    weighting = ", by calls" if is_weighted else ", equally weighted" if how != "total" else ""
    rows = f"{len(results.series.keys)} rows{weighting}"
    return Evidence(kind=SCORE, detail=f"{math.exp(mean):.4g} ({how} of {rows})")


def _notes(target: CommandTarget, series: Series) -> tuple[str, ...]:
    """Return notes about weights without a row and rows without a weight."""
    if target.weights is None:
        return ()
    names = row_keys.row_labels(series.keys, series.config.columns)
    return series.shares.notes(
        target.weights, [plain(names[key], MOST_CHARACTERS) for key in series.keys])


def metric_costs(results: ModeResults) -> Iterator[Cost]:
    """Yield the candidate's cost by each metric if there are several.

    It is a weighted geometric mean over the rows.
    """
    if len(results.row_cost.metrics) < 2:
        return
    series = results.series
    runs = [(pair.candidate.costs,
             row_keys.rows_by_key(pair.candidate.table, series.config.columns))
            for pair in results.pairs]
    for at, metric in enumerate(results.row_cost.metrics):
        values = [median(costs[rows[key]][at] for costs, rows in runs) for key in series.keys]
        yield Cost(metric=metric.name, value=stats.geometric_mean(values, series.shares.of),
                   unit=f"{PER}{metric.base}" if metric.is_rate else metric.base,
                   scored=metric.weight > 0)


def cost_evidence(costs: Iterable[Cost]) -> Iterator[Evidence]:
    """Yield the costs in words, those of rates as rates."""
    for cost in costs:
        base, shown = cost.unit.removeprefix(PER), f"{cost.value:.9g} {cost.unit}"
        if base != cost.unit:
            shown = f"{1e6 / cost.value:.9g}" + (f" {base}/s" if base != cost.metric else "")
        yield Evidence(kind="metric", detail=f"{shown} by {cost.metric}"
                                             f"{'' if cost.scored else ', not scored'}")
