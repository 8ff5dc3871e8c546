"""Whether anything but the candidate's own word bears a gain out: the time of its GPU kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from harness.benchmark.kernel_time import cupti as kernel_time
from harness.benchmark.kernel_time import gain as kernel_gain
from harness.benchmark.kernel_time.cupti import KernelProfile, KernelTimeUnavailable
from harness.benchmark.kernel_time.gain import CHANGED, KernelTimeComparison
from harness.benchmark.runs import row_keys, stopping_rule
from harness.benchmark.runs import run_pairs as series
from harness.benchmark.runs.alternating_runs import ORDER, AlternatingRuns, BenchmarkRunner
from harness.benchmark.runs.result_table import BenchmarkFault, TableReading
from harness.benchmark.runs.run_pairs import Series
from harness.benchmark.verdict.benchmark_rows import ModeResults
from harness.devices.device import Device
from harness.errors import Cancelled, KoptError
from harness.formats.text import plain
from harness.isolation.device_lock import DeviceLock
from harness.verdict import KERNEL_TIME, Evidence, Finding, KernelShare, Verdict

UNCONFIRMED = Finding(rule="reported", severity="flag", detail=(
    "reported by the candidate's own benchmark: not confirmed by kernel time"))
FASTER, TIMES = 0.1, 3.0
"""A run that is looked at may report so much less than those before it, or so many times what these
differ by; more it may well report, as CUPTI costs time at each launch.
"""


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """What came of looking; without a finding the gain is borne out."""

    finding: Finding | None = UNCONFIRMED
    evidence: tuple[Evidence, ...] = ()
    kernels: tuple[KernelShare, ...] = ()


class Confirm(Protocol):
    """Looks at a gain that the benchmark reports; the sides can still be run."""

    def __call__(self, device: Device, bench: BenchmarkRunner, seen: ModeResults,
                 /) -> Confirmation:
        """Return what is to be found fault with. Raises Cancelled alone."""
        ...


def confirm_nothing(device: Device, bench: BenchmarkRunner, seen: ModeResults) -> Confirmation:
    """Return that nobody has looked: what a person has to weigh."""
    return Confirmation()


def because(reason: str) -> Finding:
    """Return that a gain on a GPU is not confirmed, and why: nobody but a person may keep it."""
    return replace(UNCONFIRMED, rule=KERNEL_TIME, detail=f"{UNCONFIRMED.detail}: {reason}")


def confirm_by_kernel_time(device: Device, bench: BenchmarkRunner,
                           seen: ModeResults) -> Confirmation:
    """Run both sides once more, on the same card, and see what their kernels took.

    Whatever goes wrong leaves the gain as it is, unconfirmed, with the reason.
    """
    if device.kind == "cpu":
        return Confirmation()
    if device.kind == "amd":
        return Confirmation(finding=because("AMD's cards are not asked for it"))
    overall, classes = stopping_rule.estimates(seen.series, seen.plan)
    if any(one.high < 0 and one.mean <= -math.log1p(stopping_rule.LOST) for one in classes):
        return Confirmation()
    try:
        profiles = _profiles(bench, seen)
        found = kernel_gain.compare(
            profiles["incumbent"], profiles["candidate"], overall.mean,
            even=all(one.mean > -math.log1p(CHANGED) for one in classes))
    except Cancelled:
        raise
    except Exception as error:  # whatever it is, a gain that was measured is not lost by it
        _heed(bench)
        return Confirmation(finding=because(_told(error)))
    kernels = kernel_time.kernel_shares(profiles["candidate"])
    return Confirmation(finding=_finding(found, math.exp(overall.mean)), kernels=kernels, evidence=(
        Evidence(kind=KERNEL_TIME, detail=found.told), kernel_time.trace_evidence(kernels)))


def add_kernel_trace(verdict: Verdict, device: Device, bench: BenchmarkRunner,
                     seen: ModeResults) -> Verdict:
    """Return a verdict with the kernels of one more run, or with why they cannot be seen."""
    if device.kind != "nvidia":
        return verdict
    try:
        cupti = kernel_time.places(bench.sides["candidate"].place.python)
        with bench.lock() as held:
            _, profile = bench.undisturbed(lambda: _profile(bench, seen, "candidate", held, cupti))
    except Cancelled:
        raise
    except Exception as error:  # a trace is worth no verdict
        _heed(bench)
        return replace(verdict, evidence=(*verdict.evidence, Evidence(
            kind="trace", detail=f"no trace of the kernels: {_told(error)}")))
    kernels = kernel_time.kernel_shares(profile)
    return replace(verdict, kernels=kernels,
                   evidence=(*verdict.evidence, kernel_time.trace_evidence(kernels)))


def _told(error: Exception) -> str:
    return plain(error.what if isinstance(error, KoptError)
                 else f"{type(error).__name__}: {error}", 300)


def _finding(found: KernelTimeComparison, speedup: float) -> Finding | None:
    if found.ruling == "less":
        return None
    if found.ruling == "unclear":
        return because(f"{found.why} ({found.numbers})")
    return Finding(rule=KERNEL_TIME, severity="flag", detail=(
        f"GPU kernel time speaks against {speedup:.2f}x: it went from {found.numbers}"))


def _profiles(bench: BenchmarkRunner, seen: ModeResults) -> Mapping[str, KernelProfile]:
    """Return what one more run of each side says of its kernels, while nobody disturbs them."""
    incumbent = bench.sides["incumbent"]
    bench.progress("confirming", "what asks the card for kernel time", None)
    cupti = kernel_time.places(incumbent.place.python)
    with bench.lock() as held:
        found = bench.undisturbed(lambda: {
            name: _profile(bench, seen, name, held, cupti) for name in ORDER})
    _expect_alike({name: read for name, (read, _) in found.items()}, bench, seen)
    return {name: profile for name, (_, profile) in found.items()}


def _profile(bench: BenchmarkRunner, seen: ModeResults, name: str, held: DeviceLock,
             cupti: Sequence[str]) -> tuple[TableReading, KernelProfile]:
    """Return one side's run, which must measure as those before it, and what its kernels took."""
    bench.progress("confirming", f"kernel time of the {name}", ORDER.index(name) / len(ORDER))
    duel = AlternatingRuns(bench, seen.mode, seen.plan)
    try:
        read, profile = kernel_time.observed(bench.sides[name], cupti,
                                             partial(duel.reading, name, held))
        _expect_measured(read, seen.series)
    except BenchmarkFault as fault:
        raise BenchmarkFault(fault.kind, f"the {name}: {fault.what}") from None
    except KernelTimeUnavailable as unseen:
        raise KernelTimeUnavailable(f"the {name}: {unseen.what}") from None
    return read, profile


def _expect_alike(reads: Mapping[str, TableReading], bench: BenchmarkRunner,
                  seen: ModeResults) -> None:
    """Raise Unseen if a row, or the gain, is reported to be better than in the runs that count."""
    columns = seen.series.found.columns

    def logs(read: TableReading) -> list[float]:
        keyed = row_keys.keyed(read.table, columns)
        return [math.log(bench.measure.combined(read.costs[keyed[key]]))
                for key in seen.series.keys]

    before = {"incumbent": [logs(pair.incumbent) for pair in seen.pairs],
              "candidate": [logs(pair.candidate) for pair in seen.pairs]}
    for name in ORDER:
        for now, *then in zip(logs(reads[name]), *before[name], strict=True):
            if _is_below(now, then):
                raise KernelTimeUnavailable(
                    f"the {name}: looked at, it reported {math.exp(now - min(then)):.2f} "
                    "times the least that it did before"
                )
    one, other = (series.cost(bench.target, bench.measure, seen.series, reads[name])
                  for name in ORDER)
    if _is_below(math.log(other / one), [-gain for gain in seen.series.overall]):
        raise KernelTimeUnavailable(f"looked at, {one / other:.2f}x was reported, more than before")


def _is_below(now: float, then: Sequence[float]) -> bool:
    return now < min(then) - max(FASTER, TIMES * (max(then) - min(then)))


def _expect_measured(read: TableReading, series: Series) -> None:
    """Raise Fault unless the run measured, rightly, what those before it did."""
    if read.failed:
        raise BenchmarkFault("failed-check", f"row {read.failed[0].row + 1}: {read.failed[0].what}")
    row_keys.expect_same(series.keys, row_keys.keyed(read.table, series.found.columns),
                     series.found.columns)


def _heed(bench: BenchmarkRunner) -> None:
    """Let a stop be a stop, whatever it looked like from here."""
    cancel = bench.sides["incumbent"].place.cancel
    if cancel is not None and cancel.is_set():
        raise Cancelled("stopped while kernel time was looked at")


def apply_confirmation(verdict: Verdict, found: Confirmation) -> Verdict:
    """Return a verdict with what came of looking: a gain that is not borne out is flagged."""
    return replace(verdict, audit=(*verdict.audit, *([found.finding] if found.finding else [])),
                   kernels=found.kernels, evidence=(*verdict.evidence, *found.evidence))
