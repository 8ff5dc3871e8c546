"""From the pairs of one mode to the rows, the score and the notes of a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from harness.benchmark.runs import row_keys, stopping_rule
from harness.benchmark.runs.alternating_runs import IncorrectCandidate
from harness.benchmark.runs.run_pairs import ClassSeries, RunPair, Series, together
from harness.benchmark.spec.command_target import BenchmarkMode, CommandTarget
from harness.benchmark.spec.metric_units import RowCost
from harness.formats.text import plain
from harness.timing import stats
from harness.timing.plan import Plan
from harness.verdict import Evidence, Finding, Row, Verdict

NAME = 200
"""Characters of a class's name at most."""


@dataclass(frozen=True, kw_only=True)
class ModeResults:
    """What one mode has shown, and its repetition where there was one."""

    target: CommandTarget
    measure: RowCost
    plan: Plan
    mode: BenchmarkMode
    pairs: Sequence[RunPair]
    series: Series
    again: Series | None = None


def verdict(seen: ModeResults) -> Verdict:
    """Return the verdict on a candidate whose rows are all right."""
    value, repeated = stopping_rule.overall(seen.series, seen.plan, seen.again)
    again = {one.name: one for one in seen.again.classes} if seen.again else {}
    made = tuple(_row(seen, one, again.get(one.name)) for one in seen.series.classes)
    latency = together([one.candidate_us for one in seen.series.classes], "geometric",
                       [one.weight for one in seen.series.classes]) \
        if seen.target.scoring == "geometric" else \
        math.fsum(one.candidate_us for one in seen.series.classes)
    sure = value.pairs > 1
    return Verdict(
        valid=True, correct=True, rows=made, latency_us=latency, latency_kind="reported",
        speedup=math.exp(value.mean), speedup_low=math.exp(value.low) if sure else None,
        speedup_high=math.exp(value.high) if sure else None,
        detectable_effect=value.detectable if math.isfinite(value.detectable) else None,
        evidence=(*_evidence(seen), _score(seen, value.mean)), audit=tuple(findings(seen)),
        notes=(*([repeated] if repeated else []), *_notes(seen.target, seen.series)))


def wrong(failure: IncorrectCandidate) -> Verdict:
    """Return the verdict on a candidate of which a row fails: it scores 0, by no other row's gain.
    """
    row = Row(config_class=plain(failure.name, NAME), correct=False, outcome="broken",
              note=failure.complaint)
    return Verdict(valid=True, correct=False, rejected_reason=failure.what, rows=(row,),
                   evidence=(Evidence(kind="score", detail=(
                       f"0: {failure.rows} rows fail" if failure.rows > 1 else
                       "0: a row fails")),))


def _row(seen: ModeResults, one: ClassSeries, again: ClassSeries | None) -> Row:
    value = stats.estimate(one.log_ratios, seen.plan.alpha_look)
    outcome, note = stopping_rule.outcome(one, seen.plan, again)
    return Row(config_class=plain(one.name, NAME), correct=True, outcome=outcome, note=note,
               latency_us=one.candidate_us, incumbent_us=one.incumbent_us, log_ratio=value.mean,
               low=_finite(value.low), high=_finite(value.high), stderr=_finite(value.stderr),
               pairs=value.pairs, weight=one.weight,
               core=one.name in seen.target.core)


def findings(seen: ModeResults) -> Iterator[Finding]:
    """Yield what is odd about the runs, for a person to look at."""
    for name in seen.series.found.wavering:
        yield Finding(rule="reported", severity="flag", detail=(
            f"the column {name!r} is steady for the incumbent and not for the candidate; it was "
            "not taken to tell rows apart"))
    for side in ("incumbent", "candidate"):
        hashes = [getattr(pair, side).table.sha256 for pair in seen.pairs]
        if len(set(hashes)) < len(hashes):
            yield Finding(rule="reported", severity="flag" if side == "candidate" else "note",
                          detail=f"{len(hashes)} runs of the {side} wrote only {len(set(hashes))} "
                                 "different files: times are rounded, kept or made up")


def _evidence(seen: ModeResults) -> Iterator[Evidence]:
    seconds = {side: median(getattr(pair, side).wall_s for pair in seen.pairs)
               for side in ("incumbent", "candidate")}
    yield Evidence(kind="runs", detail=(
        f"{len(seen.pairs)} pairs of whole runs of the {seen.mode.name} benchmark, "
        f"{seen.series.rows} rows; a run takes {seconds['incumbent']:.3g} s of the incumbent, "
        f"{seconds['candidate']:.3g} s of the candidate by kopt's own clock"))
    yield Evidence(kind="columns", detail=(
        f"rows are told apart by {', '.join(seen.series.found.columns) or 'nothing'}"))


def _score(seen: ModeResults, mean: float) -> Evidence:
    how = "geometric mean" if seen.target.scoring == "geometric" else "total"
    by_calls = "" if seen.target.weights is None or seen.series.shares.names_none else ", by calls"
    return Evidence(kind="score", detail=(
        f"{math.exp(mean):.4g} ({how} of {seen.series.rows} rows{by_calls})"))


def _notes(target: CommandTarget, found: Series) -> tuple[str, ...]:
    """Say what the target's weights and the rows do not have in common."""
    if target.weights is None:
        return ()
    names = row_keys.labels(found.keys, found.found.columns)
    return found.shares.notes(target.weights, [plain(names[key], NAME) for key in found.keys])


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
