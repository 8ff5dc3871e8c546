"""Evaluate a candidate by the project's own benchmark, run in alternation with the incumbent."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

from harness.audit.transfer import transfer_of_project
from harness.benchmark.runs import clean_runs, row_keys, stopping_rule
from harness.benchmark.runs.command_session import BenchmarkSession, Progress
from harness.benchmark.runs.result_table import BenchmarkFault
from harness.benchmark.runs.run_pairs import Series
from harness.benchmark.spec.command_target import CommandTarget
from harness.benchmark.verdict import benchmark_rows, confirm_gain, held_out_rows
from harness.benchmark.verdict.alternating_runs import AlternatingRuns
from harness.benchmark.verdict.benchmark_rows import IncorrectCandidate, ModeResults
from harness.benchmark.verdict.confirm_gain import Confirm
from harness.compile import compiler_cache
from harness.devices.device import Device
from harness.errors import InputError
from harness.settings import Settings, Trees
from harness.verdict import Evidence, Verdict, rejected


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
        """Return the verdict, or a rejection if the candidate does not build or run."""
        session = self.session
        try:
            with clean_runs.watch(session.device) as session.clean_runs:
                session.check_confinement(self.trees.reference)
                session.built("incumbent", self.trees.incumbent)
                session.built("candidate", self.trees.candidate)
                self._test()
                verdict = self._confirmed(self._measure())
            if self.settings.keep_cache:
                compiler_cache.keep(session.folder / "incumbent" / "home",
                                    Path(self.settings.keep_cache))
        except IncorrectCandidate as failure:
            verdict = benchmark_rows.incorrect_verdict(failure)
        except BenchmarkFault as fault:
            verdict = replace(rejected(str(fault)), evidence=(
                Evidence(kind="benchmark-fault", detail=fault.kind),))
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
                "the quick command has no row that the weights name: judged by the full one"
                if has_no_weights else
                "the quick command shows a possible gain: judged by the full one")
        runs = AlternatingRuns(self.session, self.target.full, plan)
        return runs.results(runs.run())

    def _expect_same_rows(self, quick: Series) -> None:
        """Raise InputError unless the quick command measures all rows of the full one."""
        with self.session.lock() as held:
            reading = self.session.run("incumbent", self.target.full, held)
        try:
            columns = quick.config.columns
            if missing := [name for name in columns if name not in reading.table.columns]:
                raise BenchmarkFault("changed-rows", f"alone has the column {missing[0]!r}")
            row_keys.expect_same_rows(row_keys.rows_by_key(reading.table, columns), quick.keys,
                                      columns, whose="the full command")
        except BenchmarkFault as fault:
            raise InputError(
                f"the quick command {fault.what}", where="representative_shapes",
                fix="they equal target_shapes: list the shapes that it measures") from None

    def _confirmed(self, results: ModeResults) -> Verdict:
        """Return the verdict with the other evidence for or against a gain."""
        session, costs = self.session, tuple(benchmark_rows.metric_costs(results))
        verdict = benchmark_rows.verdict_of(results)
        verdict = replace(verdict, costs=costs, evidence=(
            *verdict.evidence, *benchmark_rows.cost_evidence(costs)))
        outcomes = {row.outcome for row in verdict.rows}
        if "faster" in outcomes:
            verdict = held_out_rows.checked(session, results, verdict)
            return self.confirm(session, results).applied_to(verdict)
        if self.settings.always_time or "slower" in outcomes:
            return confirm_gain.trace_kernels(
                session, results, is_baseline=self.settings.always_time).applied_to(verdict)
        return verdict
