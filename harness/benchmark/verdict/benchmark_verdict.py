"""Evaluate a candidate by the project's own benchmark, run in alternation with the incumbent."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from harness.audit.transfer import transfer_of_project
from harness.benchmark.runs import clean_runs, row_keys, stopping_rule
from harness.benchmark.runs.command_session import BenchmarkSession, Progress
from harness.benchmark.runs.result_table import BenchmarkFault
from harness.benchmark.runs.run_pairs import Series
from harness.benchmark.spec.command_target import BenchmarkMode, CommandTarget
from harness.benchmark.verdict import benchmark_rows, confirm_gain
from harness.benchmark.verdict.alternating_runs import AlternatingRuns
from harness.benchmark.verdict.benchmark_rows import IncorrectCandidate, ModeResults
from harness.benchmark.verdict.confirm_gain import Confirm
from harness.call_trace.weights import label, number
from harness.compile import compiler_cache
from harness.correctness import held_out_shapes
from harness.devices.device import Device
from harness.errors import InputError
from harness.formats import shell_command
from harness.formats.text import plain
from harness.settings import Settings, Trees
from harness.verdict import HELD_OUT, Evidence, Finding, Verdict, rejected


def evaluate(target: CommandTarget, trees: Trees, device: Device, settings: Settings, *,
             progress: Progress | None = None, cancel: threading.Event | None = None,
             confirm: Confirm = confirm_gain.confirm_by_kernel_time) -> Verdict:
    """Judge a candidate against the incumbent by whole runs of the project's benchmark.

    The target has passed `validate.check`. Raises BrokenIncumbent, EnvironmentFault, Cancelled, and
    InputError if quick and full commands do not measure the same rows as declared.
    """
    began = time.monotonic()
    with BenchmarkSession(target, device, settings, progress, cancel) as session:
        verdict = BenchmarkEvaluation(session, trees, confirm).verdict()
    findings, transfer = ([], None) if not settings.static_audit or not trees.reference else \
        transfer_of_project(target.op, Path(trees.candidate), Path(trees.reference))
    effort = settings.plan.describe_effort("pairs of runs")
    return replace(
        verdict, notes=(*filter(None, [effort]), *session.notes, *verdict.notes),
        device=device.name, effort=settings.plan.effort,
        audit=(*verdict.audit, *findings), transfer=transfer, candidate_id=settings.candidate_id,
        incumbent_tree=settings.incumbent_tree, alpha=settings.plan.alpha,
        wall_s=round(time.monotonic() - began, 3))


class BenchmarkEvaluation:
    """One evaluation: build both sides, test the candidate, run pairs, confirm a gain."""

    def __init__(self, session: BenchmarkSession, trees: Trees, confirm: Confirm) -> None:
        self.session, self.trees, self.confirm = session, trees, confirm
        self.target, self.settings = session.target, session.settings

    def verdict(self) -> Verdict:
        """Return the verdict, a rejection if the candidate fails to build, to run or in a test."""
        session = self.session
        try:
            with clean_runs.watch(session.device) as session.clean_runs:
                session.check_confinement(self.trees.reference)
                session.built("incumbent", self.trees.incumbent)
                session.built("candidate", self.trees.candidate)
                self._test()
                results = self._measure()
                rewritten = benchmark_rows.rewritten(session.rewritten())
                verdict = self._confirmed(results)
                verdict = replace(verdict, audit=(*verdict.audit, *rewritten))
            if self.settings.keep_cache:
                compiler_cache.keep(session.copies["incumbent"].home,
                                    Path(self.settings.keep_cache))
        except IncorrectCandidate as failure:
            verdict = benchmark_rows.incorrect_verdict(failure)
        except BenchmarkFault as fault:
            verdict = rejected(str(fault), Evidence(kind="benchmark-fault", detail=fault.kind))
        return replace(verdict, evidence=(*verdict.evidence, *session.clean_runs.evidence()))

    def _test(self) -> None:
        """Run the project's tests on the candidate, in a copy that the benchmark never sees."""
        for name, command in self.settings.tests:
            self.session.progress("testing", f"the project's {name}", None)
            try:
                copy = self.session.built("tests", self.trees.candidate)
                self.session.run_untimed(copy, command)
            except BenchmarkFault as fault:
                raise BenchmarkFault(
                    fault.kind, f"the project's {name} fail: {fault.what}") from None
            except ValueError as error:
                raise InputError(str(error), where=name) from None

    def _measure(self) -> ModeResults:
        """Measure by the quick command if there is one, and a possible gain by the full one."""
        plan, quick = self.settings.plan, self.target.quick
        if quick is not None:
            runs = AlternatingRuns(self.session, quick, plan)
            series = runs.run()
            if self.target.same_rows:
                self._expect_same_rows(series)
            has_no_weights = self.target.weights is not None and series.shares.names_none
            if not stopping_rule.needs_full_benchmark(series, plan) and not has_no_weights:
                self.session.notes.append("no gain by the quick command, which was enough")
                return runs.results(series)
            self.session.notes.append(
                "no row of the quick command is named in the weights: judged by the full command"
                if has_no_weights else
                "the quick command shows a possible gain: judged by the full one")
        runs = AlternatingRuns(self.session, self.target.full, plan)
        return runs.results(runs.run())

    def _expect_same_rows(self, quick: Series) -> None:
        """Raise InputError unless the quick command measures the same rows as the full one."""
        with self.session.lock() as held:
            reading = self.session.run("incumbent", self.target.full, held)
        try:
            columns = quick.config.columns
            if missing := [name for name in columns if name not in reading.table.columns]:
                raise BenchmarkFault(
                    "changed-rows", f"has a column that the full command lacks: {missing[0]!r}")
            row_keys.expect_same_rows(row_keys.rows_by_key(reading.table, columns), quick.keys,
                                      columns, whose="the full command")
        except BenchmarkFault as fault:
            raise InputError(
                f"the quick command {fault.what}", where="representative_shapes",
                fix="they equal target_shapes: list those of the quick command") from None

    def _confirmed(self, results: ModeResults) -> Verdict:
        """Return the verdict with the other evidence for or against a gain."""
        session, costs = self.session, tuple(benchmark_rows.metric_costs(results))
        verdict = benchmark_rows.verdict_of(results)
        verdict = replace(verdict, costs=costs, evidence=(
            *verdict.evidence, *benchmark_rows.cost_evidence(costs)))
        outcomes = {row.outcome for row in verdict.rows}
        if "faster" in outcomes:
            verdict = checked(session, results, verdict)
            return self.confirm(session, results).applied_to(verdict)
        if self.settings.always_time or "slower" in outcomes:
            return confirm_gain.trace_kernels(
                session, results, is_baseline=self.settings.always_time).applied_to(verdict)
        return verdict


MOST, LEAST_S = 6, 60.0
"""Most rows that are checked, and for how many seconds, or as long as the pairs took if longer."""
SLOWER, LEAST_ROW_S = 10.0, 10.0
"""A row's time limit: SLOWER times the incumbent's longest run, but at least LEAST_ROW_S."""


def checked(session: BenchmarkSession, results: ModeResults, verdict: Verdict) -> Verdict:
    """Check the candidate on rows that the benchmark lacks; return the verdict with the result."""
    command, columns = session.target.row_command, results.series.config.columns
    measured = [_sizes(dict(zip(columns, key, strict=True))) for key in results.series.keys]
    names = [name for name in columns if all(name in point for point in measured)
             and name in shell_command.placeholders(command)]
    if not names:
        why = "target.row_command is not set" if not command else \
            "no column in target.row_command holds whole numbers"
        return _add_evidence(
            verdict, f"values that no row has are not checked: {why}")
    right: list[str] = []
    limit_s = max(LEAST_ROW_S, SLOWER * max(pair.incumbent.wall_s for pair in results.pairs))
    until = time.monotonic() + max(LEAST_S, sum(
        pair.incumbent.wall_s + pair.candidate.wall_s for pair in results.pairs))
    for row in islice(_rows(results, measured, names), MOST):
        if time.monotonic() > until:
            break
        name = plain(label(names, [row[column] for column in names]), 200)
        session.progress("checking", f"{name}, which is not timed", None)
        problem = _problem(session, "candidate", row, limit_s)
        if not problem:
            right.append(name)
        elif not _problem(session, "incumbent", row, limit_s):
            finding = Finding(rule=HELD_OUT, severity="flag", detail=(
                f"{problem} on {name}, a row that the benchmark does not have; the incumbent is "
                "correct on it"))
            return replace(_add_evidence(verdict, _described(right)),
                           audit=(*verdict.audit, finding))
    return _add_evidence(verdict, _described(right))


def _rows(results: ModeResults, measured: Sequence[Mapping[str, int]],
          names: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield rows to check, cells by column: shapes that a program calls and no row measures, then
    rows with other values.
    """
    series, weights = results.series, results.target.weights
    rows = [dict(zip(series.config.columns, key, strict=True)) for key in series.keys]
    if weights is not None:
        for shape in series.shares.absent:
            yield rows[0] | dict(zip(weights.columns, shape.cells, strict=True))
    for point in held_out_shapes.points(measured, names, random.SystemRandom()):
        yield rows[point.base] | {point.name: str(point.value)}


def _problem(session: BenchmarkSession, side: str, row: Mapping[str, str],
             limit_s: float) -> str:
    """Run one side on a row; return what is wrong, "" if its check passes. Raises Cancelled."""
    target = session.target
    mode = BenchmarkMode(name="full", command=shell_command.fill(target.row_command, row),
                         csv=target.csv)
    try:
        with session.lock() as held:
            reading = session.measure(session.copies[side], mode, target, session.row_cost, held,
                                      limit_s)
        reading.expect_passed()
        table = reading.table
        written = [_sizes(dict(zip(table.columns, cells, strict=True))) for cells in table.rows]
        if len(written) != 1 or not _sizes(row).items() <= written[0].items():
            return "writes other rows than requested"
    except BenchmarkFault as fault:
        verb = "is wrong" if fault.kind == "failed-check" else "fails"
        return f"{verb} ({plain(fault.what, 200)})"
    return ""


def _sizes(row: Mapping[str, str]) -> dict[str, int]:
    """Return the whole numbers of a row by column."""
    numbers = {name: number(cell) for name, cell in row.items()}
    return {name: int(value) for name, value in numbers.items()
            if value is not None and value.is_integer() and value >= 0}


def _described(right: list[str]) -> str:
    return f"correct on {len(right)} rows that the benchmark does not have: {'; '.join(right)}" \
        if right else "no rows other than the benchmark's could be checked"


def _add_evidence(verdict: Verdict, detail: str) -> Verdict:
    return replace(verdict, evidence=(*verdict.evidence, Evidence(kind=HELD_OUT, detail=detail)))
