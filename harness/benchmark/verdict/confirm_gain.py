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
from harness.benchmark.verdict.benchmark_rows import ModeResults
from harness.errors import Cancelled, KoptError
from harness.formats.json_codec import to_json
from harness.formats.text import plain
from harness.isolation import raw_outputs
from harness.isolation.device_lock import DeviceLock
from harness.verdict import KERNEL_TIME, NO_PROFILER, Evidence, Finding, KernelShare

UNCONFIRMED = Finding(rule="reported", severity="flag", detail=(
    "reported by the candidate's own benchmark: not confirmed by kernel time"))
FASTER, TIMES = 0.1, 3.0
"""How much less an observed run may report: this log-ratio, or this multiple of the spread."""


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """The result of a confirmation; without a finding the gain is confirmed."""

    finding: Finding | None = UNCONFIRMED
    evidence: tuple[Evidence, ...] = ()
    kernels: tuple[KernelShare, ...] = ()


Confirm = Callable[[BenchmarkSession, ModeResults], Confirmation]
"""Checks a reported gain; the working copies still exist. Raises only Cancelled."""


def unconfirmed_because(reason: str, rule: str = KERNEL_TIME) -> Finding:
    """Return why a gain on a GPU is not confirmed; the judge asks a person by its rule."""
    return replace(UNCONFIRMED, rule=rule, detail=f"{UNCONFIRMED.detail}: {reason}")


def confirm_by_kernel_time(session: BenchmarkSession, results: ModeResults) -> Confirmation:
    """Compare kernel time of one more run of each side; a failure leaves the gain unconfirmed."""
    profiler = profiler_for(session.device, session.environment.python)
    if profiler is None:
        return Confirmation()
    overall, classes = stopping_rule.estimates(results.series, results.plan)
    if any(estimate.high < 0 and estimate.mean <= -math.log1p(stopping_rule.HEAVY_LOSS)
           for estimate in classes):
        return Confirmation()
    try:
        profiles = _profiles(session, results, profiler)
        comparison = kernel_gain.compare(
            profiles["incumbent"], profiles["candidate"], overall.mean,
            is_even=all(estimate.mean > -math.log1p(CHANGED) for estimate in classes),
            tool=profiler.tool)
    except Cancelled:
        raise
    except Exception as error:  # a measured gain is not lost because this check fails
        _raise_if_cancelled(session)
        return Confirmation(finding=unconfirmed_because(profiler.missing, NO_PROFILER)
                            if profiler.missing else unconfirmed_because(_message(error)))
    kernels = kernel_profile.kernel_shares(profiles["candidate"])
    evidence = Evidence(kind=KERNEL_TIME, detail=comparison.description)
    return Confirmation(finding=_finding(comparison, math.exp(overall.mean)), kernels=kernels,
                        evidence=(evidence, kernel_profile.trace_evidence(kernels, profiler.tool)))


def trace_kernels(session: BenchmarkSession, results: ModeResults) -> Confirmation:
    """Return the kernels of one more run, or why they cannot be observed; nothing is confirmed."""
    profiler = profiler_for(session.device, session.environment.python)
    if profiler is None:
        return Confirmation(finding=None)
    try:
        _, profile = _observed(session, results, ["candidate"], profiler)["candidate"]
    except Cancelled:
        raise
    except Exception as error:  # a verdict is not lost because its trace fails
        _raise_if_cancelled(session)
        return Confirmation(finding=None, evidence=(Evidence(
            kind="trace", detail=f"no trace of the kernels: {_message(error)}"),))
    kernels = kernel_profile.kernel_shares(profile)
    return Confirmation(finding=None, kernels=kernels, evidence=(
        kernel_profile.trace_evidence(kernels, profiler.tool),))


def _message(error: Exception) -> str:
    return plain(error.what if isinstance(error, KoptError)
                 else f"{type(error).__name__}: {error}", 300)


def _finding(comparison: KernelTimeComparison, speedup: float) -> Finding | None:
    if comparison.ruling == "less":
        return None
    if comparison.ruling == "unclear":
        return unconfirmed_because(f"{comparison.why} ({comparison.times})")
    return Finding(rule=KERNEL_TIME, severity="flag", detail=(
        f"GPU kernel time speaks against {speedup:.2f}x: it went from {comparison.times}"))


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
    series, columns = results.series, results.series.config.columns
    try:
        reading, profile = profiler.observe(session.copies[name],
                                            partial(session.run, name, results.mode, held))
        reading.expect_passed()
        row_keys.expect_same_rows(series.keys, row_keys.rows_by_key(reading.table, columns),
                                  columns)
    except BenchmarkFault as fault:
        raise BenchmarkFault(fault.kind, f"the {name}: {fault.what}") from None
    except KernelTimeUnavailable as error:
        raise KernelTimeUnavailable(f"the {name}: {error.what}") from None
    return reading, profile


def _expect_alike(readings: Mapping[str, TableReading], session: BenchmarkSession,
                  results: ModeResults) -> None:
    """Raise KernelTimeUnavailable if an observed run reports a better row or gain than before."""
    columns = results.series.config.columns

    def logs(reading: TableReading) -> list[float]:
        rows = row_keys.rows_by_key(reading.table, columns)
        return [math.log(session.row_cost.combined(reading.costs[rows[key]]))
                for key in results.series.keys]

    before = {"incumbent": [logs(pair.incumbent) for pair in results.pairs],
              "candidate": [logs(pair.candidate) for pair in results.pairs]}
    for name in ORDER:
        for now, *then in zip(logs(readings[name]), *before[name], strict=True):
            if _is_below(now, then):
                raise KernelTimeUnavailable(
                    f"the {name}: the observed run reported {math.exp(now - min(then)):.2f} times "
                    "the least of its earlier runs")
    incumbent, candidate = (run_pairs.table_cost(
        session.target, session.row_cost, results.series, readings[name]) for name in ORDER)
    if _is_below(math.log(candidate / incumbent), [-gain for gain in results.series.overall]):
        raise KernelTimeUnavailable(
            f"the observed run reported {incumbent / candidate:.2f}x, more than before")


def _is_below(now: float, then: Sequence[float]) -> bool:
    return now < min(then) - max(FASTER, TIMES * (max(then) - min(then)))


def _raise_if_cancelled(session: BenchmarkSession) -> None:
    """Raise Cancelled if that was the cause of another error."""
    cancel = session.environment.cancel
    if cancel is not None and cancel.is_set():
        raise Cancelled("cancelled while kernel time was measured")
