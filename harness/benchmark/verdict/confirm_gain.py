"""Check a reported gain by the time of its GPU kernels, which the candidate does not report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from harness.benchmark.kernel_time import gain as kernel_gain
from harness.benchmark.kernel_time import profile as kernel_profile
from harness.benchmark.kernel_time.gain import CHANGED, KernelTimeComparison
from harness.benchmark.kernel_time.profile import KernelProfile, KernelTimeUnavailable, Profiler
from harness.benchmark.kernel_time.profilers import profiler_for
from harness.benchmark.runs import row_keys, run_pairs, stopping_rule
from harness.benchmark.runs.command_session import ORDER, BenchmarkSession
from harness.benchmark.runs.result_table import BenchmarkFault, TableReading
from harness.benchmark.verdict import kernel_rows
from harness.benchmark.verdict.benchmark_rows import ModeResults
from harness.benchmark.verdict.kernel_rows import KernelRuns
from harness.errors import Cancelled, KoptError
from harness.formats.json_codec import to_json
from harness.formats.quantities import ratio
from harness.formats.text import plain
from harness.isolation import raw_outputs
from harness.isolation.device_lock import DeviceLock
from harness.verdict import (
    KERNEL_TIME,
    NO_PROFILER,
    OWN_TIMES,
    Evidence,
    Finding,
    KernelShare,
    Verdict,
)

UNCONFIRMED = Finding(rule="reported", severity="flag", detail=(
    "only the benchmark's own times show the gain, not confirmed by kernel time"))
BY_OWN_TIMES = Finding(rule=OWN_TIMES, severity="flag", detail=(
    "only the benchmark's own times show the gain, as nothing here measures kernel time; your "
    "first approval settles this for the campaign"))


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """What kernel time says of a reported gain; `finding`: why that is not confirmed."""

    finding: Finding | None = None
    evidence: tuple[Evidence, ...] = ()
    kernels: tuple[KernelShare, ...] = ()
    notes: tuple[str, ...] = ()
    add_kernel_time: Callable[[Verdict], Verdict] | None = None
    """Returns the verdict with the rows' kernel time."""

    def applied_to(self, verdict: Verdict) -> Verdict:
        """Return the verdict with this result."""
        judged = self.add_kernel_time(verdict) if self.add_kernel_time else verdict
        return replace(judged, audit=(*judged.audit, *([self.finding] if self.finding else [])),
                       kernels=self.kernels, evidence=(*judged.evidence, *self.evidence),
                       notes=(*judged.notes, *self.notes))


Confirm = Callable[[BenchmarkSession, ModeResults], Confirmation]
"""Checks a reported gain; the working copies still exist. Raises only Cancelled."""


def unconfirmed_because(reason: str, rule: str = KERNEL_TIME) -> Finding:
    """Return the finding that a gain on a GPU is not confirmed, and why.

    Because of the finding's `rule`, the judge asks a person.
    """
    return replace(UNCONFIRMED, rule=rule, detail=f"{UNCONFIRMED.detail}: {reason}")


def confirm_by_kernel_time(session: BenchmarkSession, results: ModeResults) -> Confirmation:
    """Judge by the kernel time of rows, or confirm the gain by that of whole runs.

    A failure leaves the gain unconfirmed.
    """
    profiler = profiler_for(session.device, session.environment.python)
    if profiler is None:
        return Confirmation(finding=BY_OWN_TIMES)
    _, classes = stopping_rule.estimates(results.series, results.plan)
    if any(estimate.high < 0 and estimate.mean <= -math.log1p(stopping_rule.HEAVY_LOSS)
           for estimate in classes):
        return Confirmation(finding=UNCONFIRMED)
    of_rows = _kernel_time_of_rows(session, results, profiler)
    if of_rows.add_kernel_time is not None:
        return of_rows
    whole = _confirm_by_whole_runs(session, results, profiler)
    return replace(whole, notes=of_rows.notes)


def _kernel_time_of_rows(session: BenchmarkSession, results: ModeResults, profiler: Profiler, *,
                         once: bool = False) -> Confirmation:
    """Measure the rows' kernel time: to judge by it, or with `once` only to show it.

    Where it cannot be measured, the notes say why.
    """
    if results.plan.score != "kernel" or profiler.missing:
        return Confirmation()
    if why := kernel_rows.why_not_by_row(session, results):
        return Confirmation(notes=(why,))
    runs = KernelRuns(session, results, profiler)
    try:
        if once:
            add_kernel_time = partial(kernel_rows.shown, kernel=runs.once())
        else:
            add_kernel_time = partial(kernel_rows.judged, kernel=runs.results(runs.run()),
                                      reported=results, tool=profiler.tool)
            session.notes[0] = f"latency_us is GPU kernel time by {profiler.tool}; " \
                f"{session.notes[0].replace('latency_us', 'other_us', 1)}"
        return replace(_traced(kernel_profile.merged(runs.profiles), profiler),
                       add_kernel_time=add_kernel_time)
    except Exception as error:  # a gain counts even if its rows' kernels cannot be measured
        return Confirmation(notes=(f"{kernel_rows.WHOLE_RUN}: {_message(session, error)}",))


def _traced(profile: KernelProfile, profiler: Profiler) -> Confirmation:
    """Return a profile's kernels with the most time, as data and as evidence."""
    kernels = kernel_profile.kernel_shares(profile)
    return Confirmation(kernels=kernels, evidence=(
        kernel_profile.trace_evidence(kernels, profiler.tool),))


def _confirm_by_whole_runs(session: BenchmarkSession, results: ModeResults,
                           profiler: Profiler) -> Confirmation:
    """Compare kernel time of one more run of each side."""
    overall, classes = stopping_rule.estimates(results.series, results.plan)
    try:
        profiles = _profiles(session, results, profiler)
        comparison = kernel_gain.compare(
            profiles["incumbent"], profiles["candidate"], overall.mean,
            is_even=all(estimate.mean > -math.log1p(CHANGED) for estimate in classes),
            tool=profiler.tool)
    except Exception as error:  # a measured gain is not lost because this check fails
        why = _message(session, error)
        return Confirmation(finding=unconfirmed_because(profiler.missing, NO_PROFILER)
                            if profiler.missing else unconfirmed_because(why))
    evidence = Evidence(kind=KERNEL_TIME, detail=comparison.description)
    traced = _traced(profiles["candidate"], profiler)
    return replace(traced, finding=_finding(comparison, math.exp(overall.mean)),
                   evidence=(evidence, *traced.evidence))


def trace_kernels(session: BenchmarkSession, results: ModeResults, *,
                  is_baseline: bool) -> Confirmation:
    """Return the kernels of one more run, or why they cannot be observed; nothing is confirmed.

    For a candidate other than the baseline only the rows' kernel time is shown.
    """
    profiler = profiler_for(session.device, session.environment.python)
    if profiler is None:
        return Confirmation()
    of_rows = _kernel_time_of_rows(session, results, profiler, once=True)
    if of_rows.add_kernel_time is not None or not is_baseline:
        return of_rows
    try:
        _, profile = _observed(session, results, ["candidate"], profiler)["candidate"]
    except Exception as error:  # a verdict is not lost because its trace fails
        return Confirmation(notes=of_rows.notes, evidence=(Evidence(
            kind="trace", detail=f"no trace of the kernels: {_message(session, error)}"),))
    return replace(_traced(profile, profiler), notes=of_rows.notes)


def _message(session: BenchmarkSession, error: Exception) -> str:
    """Return an error in one line. Raises Cancelled if that was its cause."""
    cancel = session.environment.cancel
    if isinstance(error, Cancelled) or (cancel is not None and cancel.is_set()):
        raise Cancelled("cancelled while kernel time was measured") from error
    return plain(error.what if isinstance(error, KoptError)
                 else f"{type(error).__name__}: {error}", 300)


def _finding(comparison: KernelTimeComparison, speedup: float) -> Finding | None:
    if comparison.ruling == "less":
        return None
    if comparison.ruling == "unclear":
        return unconfirmed_because(f"{comparison.why} ({comparison.times})")
    return Finding(rule=KERNEL_TIME, severity="flag", detail=(
        f"GPU kernel time contradicts {ratio(speedup)}: it went from {comparison.times}"))


def _profiles(session: BenchmarkSession, results: ModeResults,
              profiler: Profiler) -> Mapping[str, KernelProfile]:
    """Return the kernels of one more undisturbed run of each side."""
    session.progress("confirming", f"one more run of each side under {profiler.tool}", None)
    observed = _observed(session, results, ORDER, profiler)
    _expect_alike({name: reading for name, (reading, _) in observed.items()}, session, results)
    return {name: profile for name, (_, profile) in observed.items()}


def _observed(session: BenchmarkSession, results: ModeResults, names: Sequence[str],
              profiler: Profiler) -> dict[str, tuple[TableReading, KernelProfile]]:
    """Run some sides once more, undisturbed; return each one's table and kernels."""
    with session.lock() as held:
        observed = session.clean_runs(lambda: {
            name: _profile(session, results, name, held, profiler) for name in names})
    raw_outputs.keep(raw_outputs.PROFILE, to_json(
        {name: profile for name, (_, profile) in observed.items()}))
    return observed


def _profile(session: BenchmarkSession, results: ModeResults, name: str, held: DeviceLock,
             profiler: Profiler) -> tuple[TableReading, KernelProfile]:
    """Return one side's run, which must measure the same rows as before, and its kernels."""
    session.progress("confirming", f"kernel time of the {name}", ORDER.index(name) / len(ORDER))
    try:
        reading, profile = profiler.observe(session.copies[name],
                                            partial(session.run, name, results.mode, held))
        reading.expect_passed()
        row_keys.matching_rows(results.series.keys, reading.table, results.series.config.columns)
    except BenchmarkFault as fault:
        raise BenchmarkFault(fault.kind, f"the {name}: {fault.what}") from None
    except KernelTimeUnavailable as error:
        raise KernelTimeUnavailable(f"the {name}: {error.what}") from None
    return reading, profile


def _expect_alike(readings: Mapping[str, TableReading], session: BenchmarkSession,
                  results: ModeResults) -> None:
    """Raise KernelTimeUnavailable if an observed run reports a better row or gain than before."""
    for name in ORDER:
        kernel_rows.expect_alike(name, readings[name], results, session)
    incumbent, candidate = (run_pairs.table_cost(
        session.target, session.row_cost, results.series, readings[name]) for name in ORDER)
    if kernel_rows.is_below(math.log(candidate / incumbent),
                            [-gain for gain in results.series.overall]):
        raise KernelTimeUnavailable(
            f"the observed run reported {ratio(incumbent / candidate)}, more than before")
