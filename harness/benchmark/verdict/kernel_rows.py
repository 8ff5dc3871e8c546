"""Kernel time of each row: the benchmark runs on one row at a time, under a profiler.

A row's launches are those of its own run, so nothing has to be guessed from names or from order.
The run must write the one row that it was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from harness.benchmark.kernel_time import gain
from harness.benchmark.kernel_time.profile import KernelProfile, KernelTimeUnavailable, Profiler
from harness.benchmark.runs import row_keys
from harness.benchmark.runs.command_session import ORDER, BenchmarkSession
from harness.benchmark.runs.result_table import BenchmarkFault, ResultTable, TableReading
from harness.benchmark.runs.row_keys import RowKey
from harness.benchmark.runs.run_pairs import ClassSeries, RunPair, Series
from harness.benchmark.spec.command_target import BenchmarkMode, Metric
from harness.benchmark.spec.metric_units import RowCost
from harness.benchmark.verdict import benchmark_rows
from harness.benchmark.verdict.alternating_runs import AlternatingRuns
from harness.benchmark.verdict.benchmark_rows import MOST_CHARACTERS, ModeResults
from harness.formats import quantities, shell_command
from harness.formats.text import plain
from harness.isolation.device_lock import DeviceLock
from harness.timing import outcome, stats
from harness.verdict import KERNEL_TIME, SCORE, Evidence, Row, Verdict

METRIC = Metric(name="kernel_us", unit="us")
WHOLE_RUN = "kernel time of the whole run only"
FASTER, TIMES = 0.1, 3.0
"""An observed run may report less by this log-ratio, or by this multiple of the spread if more."""


def why_not_by_row(session: BenchmarkSession, results: ModeResults) -> str:
    """Return why launches cannot be attributed to rows, "" if they can."""
    columns, command = results.series.config.columns, session.target.row_command
    if unknown := [name for name in shell_command.placeholders(command) if name not in columns]:
        return f"{WHOLE_RUN}: {{{unknown[0]}}} in target.row_command is none of the config " \
            f"columns {', '.join(columns)}"
    if len(results.series.keys) == 1 or command:
        return ""
    return f"{WHOLE_RUN}: without target.row_command its launches cannot be attributed to rows"


class KernelRuns(AlternatingRuns):
    """Pairs in which every row runs alone on each side; its cost is the kernel time of a call."""

    def __init__(self, session: BenchmarkSession, reported: ModeResults,
                 profiler: Profiler) -> None:
        super().__init__(session, reported.mode, reported.plan)
        self.target = replace(session.target, metrics=(METRIC,), combine="auto")
        self.row_cost = RowCost(self.target)
        self.profiler, self._reported = profiler, reported
        self._columns = reported.series.config.columns
        self._names = row_keys.row_labels(reported.series.keys, self._columns)
        self.profiles: list[KernelProfile] = []
        """The kernels of the candidate's runs, one profile per row and pair."""

    def once(self) -> Series:
        """Run one pair, which shows kernel time and proves nothing."""
        self._run_pair(1, 1)
        return self._series(self.pairs)

    def _run_pair(self, number: int, most: int) -> None:
        keys = self._reported.series.keys
        times = []
        for done, key in enumerate(keys):
            self.session.progress(
                "confirming", f"kernel time of {plain(self._names[key], MOST_CHARACTERS)}, "
                f"pair {number}", done / len(keys))
            times.append(self._row(key, number))
        incumbent, candidate = (
            TableReading(table=ResultTable(columns=self._columns, rows=tuple(keys)),
                         costs=tuple((side,) for side in sides))
            for sides in zip(*times, strict=True))
        self.pairs.append(RunPair(incumbent=incumbent, candidate=candidate))

    def _row(self, key: RowKey, number: int) -> tuple[float, float]:
        """Return the kernel time of a call of both sides, from one more run of each.

        A run whose calls cannot be counted is repeated once: on an idle card, whose clock is low at
        first, what prepares the run may take too long.
        """
        try:
            try:
                return self._call_times_us(key, number)
            except KernelTimeUnavailable:
                return self._call_times_us(key, number)
        except (BenchmarkFault, KernelTimeUnavailable) as error:
            raise KernelTimeUnavailable(
                f"{plain(self._names[key], MOST_CHARACTERS)}: {error.what}") from None

    def _call_times_us(self, key: RowKey, number: int) -> tuple[float, float]:
        """Run both sides once. Raises KernelTimeUnavailable where calls cannot be counted."""
        with self.session.lock() as held:
            profiles = self.session.clean_runs(lambda: {
                name: self._observed(name, key, held)
                for name in (ORDER if number % 2 else ORDER[::-1])})
        times = gain.call_times_us(profiles["incumbent"], profiles["candidate"])
        self.profiles.append(profiles["candidate"])
        return times

    def _observed(self, name: str, key: RowKey, held: DeviceLock) -> KernelProfile:
        command = shell_command.fill(self.target.row_command,
                                     dict(zip(self._columns, key, strict=True)))
        mode = self.mode if not command else BenchmarkMode(
            name="full", command=command, csv=self.target.csv)
        reading, kernels = self.profiler.observe(
            self.session.copies[name], partial(self.session.run, name, mode, held))
        reading.expect_passed()
        row_keys.matching_rows([key], reading.table, self._columns, whose="row_command's row")
        expect_alike(name, reading, self._reported, self.session)
        return kernels


def expect_alike(name: str, observed: TableReading, results: ModeResults,
                 session: BenchmarkSession) -> None:
    """Raise KernelTimeUnavailable if an observed run reports a better row than all before it."""
    columns = results.series.config.columns

    def logs(reading: TableReading, keys: Iterable[RowKey]) -> list[float]:
        rows = row_keys.rows_by_key(reading.table, columns)
        return [math.log(session.row_cost.combined(reading.costs[rows[key]])) for key in keys]

    keys = list(row_keys.rows_by_key(observed.table, columns))
    earlier = [logs(getattr(pair, name), keys) for pair in results.pairs]
    for now, *before in zip(logs(observed, keys), *earlier, strict=True):
        if is_below(now, before):
            raise KernelTimeUnavailable(
                f"the {name}: the observed run reported {math.exp(now - min(before)):.2f} times "
                "the lowest cost of its earlier runs")


def is_below(now: float, before: Sequence[float]) -> bool:
    """Return whether a value is far less than all earlier ones."""
    return now < min(before) - max(FASTER, TIMES * (max(before) - min(before)))


def judged(verdict: Verdict, kernel: ModeResults, reported: ModeResults, tool: str) -> Verdict:
    """Return the verdict by the rows' kernel time; what the benchmark reports must agree."""
    rows = len(kernel.series.keys)
    measured = Evidence(kind=KERNEL_TIME, detail=(
        f"GPU kernel time of {rows} rows, each in its own run, " if rows > 1 else
        "GPU kernel time of the one row, ") + f"{len(kernel.pairs)} pairs, by {tool}")
    scored = benchmark_rows.score(replace(verdict, by_kernel_time=True, notes=(), evidence=(
        *(entry for entry in verdict.evidence if entry.kind != SCORE), measured)), kernel)
    return replace(scored, rows=tuple(
        _with_reported(row, series, reported)
        for row, series in zip(scored.rows, reported.series.classes, strict=True)))


def _with_reported(row: Row, reported: ClassSeries, results: ModeResults) -> Row:
    """Return a row of kernel time with the benchmark's times, and a note where both disagree."""
    estimate = stats.estimate(reported.log_ratios, results.plan.alpha_look)
    row = replace(row, other_us=reported.candidate_us, incumbent_other_us=reported.incumbent_us)
    reported_change = f"the benchmark reports {quantities.change(estimate.mean)}"
    if row.outcome == "faster" and outcome.other_time_disagrees(estimate):
        return replace(row, outcome="tie", note=(
            f"kernel time {quantities.change(row.log_ratio)}, but {reported_change}"))
    if row.outcome != "faster" and estimate.mean >= math.log1p(results.plan.margin):
        change = "rose" if row.outcome == "slower" else "did not fall"
        return replace(row, note="; ".join(filter(None, (
            row.note, f"its kernel time {change}, although {reported_change}"))))
    return row


def shown(verdict: Verdict, kernel: Series) -> Verdict:
    """Return a verdict by reported times that shows the rows' kernel time beside them."""
    return replace(verdict, rows=tuple(
        replace(row, other_us=series.candidate_us, incumbent_other_us=series.incumbent_us)
        for row, series in zip(verdict.rows, kernel.classes, strict=True)))
