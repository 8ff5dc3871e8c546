"""The verdict on a command target: build, test, benchmark in turn, and say how sure that is.

It raises for a benchmark that does not work on the incumbent either, not for candidates.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.audit import benchmark_transfer
from harness.benchmark.runs import clean_runs, row_keys, stopping_rule
from harness.benchmark.runs.alternating_runs import (
    AlternatingRuns,
    BenchmarkRunner,
    IncorrectCandidate,
)
from harness.benchmark.runs.clean_runs import CleanRuns
from harness.benchmark.runs.csv_reader import CsvReader
from harness.benchmark.runs.result_table import BenchmarkFault
from harness.benchmark.runs.run_pairs import BrokenIncumbent, Series
from harness.benchmark.runs.workdir import COMMAND_LIMITS, CommandEnvironment, WorkingCopy
from harness.benchmark.spec.command_target import BenchmarkMode, CommandTarget
from harness.benchmark.spec.metric_units import RowCost
from harness.benchmark.verdict import benchmark_rows, metric_costs
from harness.benchmark.verdict import confirm_gain as confirmation
from harness.benchmark.verdict.benchmark_rows import ModeResults
from harness.benchmark.verdict.confirm_gain import Confirm, confirm_by_kernel_time
from harness.compile import compiler_cache
from harness.devices.device import Device
from harness.errors import InputError
from harness.formats import file_copy
from harness.isolation import device_lock, guard
from harness.isolation.device_lock import DeviceLock
from harness.settings import Settings, Trees
from harness.timing.plan import Plan
from harness.verdict import Evidence, Finding, Transfer, Verdict, rejected

Progress = Callable[[str, str, float | None], None]


def evaluate(target: CommandTarget, trees: Trees, device: Device, settings: Settings, *,
             progress: Progress | None = None, cancel: threading.Event | None = None,
             confirm: Confirm = confirm_by_kernel_time) -> Verdict:
    """Judge a candidate by the project's own benchmark, run whole, against the incumbent.

    The target has passed `target.check`. Raises BrokenIncumbent where its benchmark fails without
    the candidate, InputError where its two commands do not measure what it says they do,
    EnvironmentFault when the machine fails and Cancelled.
    """
    return BenchmarkEvaluation(target, trees, device, settings, progress, cancel, confirm).run()


class BenchmarkEvaluation:
    """One evaluation; everything is written below one folder of the scratch."""

    def __init__(self, target: CommandTarget, trees: Trees, device: Device, settings: Settings,
                 progress: Progress | None, cancel: threading.Event | None,
                 confirm: Confirm) -> None:
        self.target, self.trees, self.device, self.settings = target, trees, device, settings
        self.measure = RowCost(target)
        self.on_cpu = device.kind == "cpu"
        self._progress = progress or (lambda stage, detail, done: None)
        self._cancel, self._confirm = cancel, confirm
        self._folder = Path(settings.scratch) / "reported"
        self._reader = CsvReader(self._folder / "reader", settings.python, cancel)
        self._yields = device_lock.turnstile() if self.on_cpu else None
        self.undisturbed = CleanRuns()
        reason = guard.confinement_problem()
        self._place = CommandEnvironment(
            env={**settings.env, **device.visible_env}, python=settings.python,
            nodes=device.all_nodes,
            limits=replace(COMMAND_LIMITS, wall_s=target.timeout_s), cancel=cancel,
            warm=settings.warm_cache, tell=self.note)
        self.notes = [self.measure.note]
        if reason:
            self.notes.append(f"candidates are not confined on this machine: {reason}")

    def note(self, text: str) -> None:
        self.notes.append(text)

    def run(self) -> Verdict:
        began = time.monotonic()
        try:
            with clean_runs.watch(self.device) as self.undisturbed:
                verdict = self._judge()
            verdict = replace(verdict, evidence=(*verdict.evidence, *self.undisturbed.evidence()))
            if self.settings.keep_cache:
                compiler_cache.keep(
                    self._folder / "incumbent" / "home", Path(self.settings.keep_cache)
                )
        except IncorrectCandidate as failure:
            verdict = benchmark_rows.wrong(failure)
            verdict = replace(verdict, evidence=(*verdict.evidence, *self.undisturbed.evidence()))
        except BenchmarkFault as fault:
            verdict = replace(rejected(str(fault)), evidence=(
                Evidence(kind="benchmark-fault", detail=fault.kind), *self.undisturbed.evidence()))
        finally:
            self._reader.close()
            file_copy.remove(self._folder)
        found, carried = self._audited()
        return replace(
            verdict, notes=(*self.notes, *verdict.notes), device=self.device.name,
            audit=(*verdict.audit, *found), transfer=carried,
            candidate_id=self.settings.candidate_id, incumbent_tree=self.settings.incumbent_tree,
            alpha=self.settings.plan.alpha, wall_s=round(time.monotonic() - began, 3))

    def _audited(self) -> tuple[list[Finding], Transfer | None]:
        """Say whether what was edited carries over from a benchmark, as far as its text tells."""
        if not self.settings.static_audit or not self.trees.reference:
            return [], None
        return benchmark_transfer.audit(self.target.op, Path(self.trees.candidate),
                             Path(self.trees.reference))

    def _judge(self) -> Verdict:
        self._rehearse()
        incumbent = self._side("incumbent", self.trees.incumbent)
        self._build(incumbent)
        candidate = self._side("candidate", self.trees.candidate)
        self._build(candidate)
        self._test()
        sides = {"incumbent": incumbent, "candidate": candidate}
        bench = self.bench(sides)
        seen = self._measured(bench)
        verdict = benchmark_rows.verdict(seen)
        costs = tuple(metric_costs.costs(seen))
        verdict = replace(verdict, costs=costs,
                          evidence=(*verdict.evidence, *metric_costs.evidence(costs)))
        if any(row.outcome == "faster" for row in verdict.rows):
            verdict = confirmation.apply_confirmation(
                verdict, self._confirm(self.device, bench, seen)
            )
        elif verdict.correct and self.settings.always_time:
            verdict = confirmation.add_kernel_trace(verdict, self.device, bench, seen)
        return verdict

    def bench(self, sides: Mapping[str, WorkingCopy]) -> BenchmarkRunner:
        return BenchmarkRunner(
            target=self.target,
            measure=self.measure,
            sides=sides,
            reader=self._reader,
            lock=self._lock,
            progress=self._progress,
            undisturbed=self.undisturbed,
        )

    def _rehearse(self) -> None:
        """See whether a GPU works inside namespaces; where it does not, confine nobody.

        The baseline is asked: what an agent has written could fail there on purpose.
        """
        if self.on_cpu or guard.confinement_problem():
            return
        incumbent = self._side("rehearsal", self.trees.reference)
        self._build(incumbent)
        command = (self.target.quick or self.target.full).command
        with self._lock() as held:
            try:
                incumbent.run(command, lock=held)
            except BenchmarkFault as fault:
                incumbent.place = self._place = replace(self._place, confined=False)
                try:
                    incumbent.run(command, lock=held)
                except BenchmarkFault as again:
                    raise BrokenIncumbent(again) from None
                self.notes.append("candidates are not confined: inside namespaces the benchmark "
                                  f"{fault.what}")

    def _measured(self, bench: BenchmarkRunner) -> ModeResults:
        """Measure by the quick command if there is one, and by the full one what may be a gain."""
        plan, quick = self.settings.plan, self.target.quick
        if quick is not None:
            duel = AlternatingRuns(bench, quick, plan)
            found = duel.run()
            if self.target.same_rows:
                self._expect_same_rows(bench, found)
            unweighed = self.target.weights is not None and found.shares.names_none
            if not stopping_rule.upgrade(found, plan) and not unweighed:
                self.notes.append("no gain by the quick command, which was enough")
                return self._seen(duel, found, plan, quick)
            self.notes.append(
                "the quick command has no row that the weights name: judged by the full one"
                if unweighed else
                "the quick command shows what may be a gain: judged by the full one")
        duel = AlternatingRuns(bench, self.target.full, plan)
        return self._seen(duel, duel.run(), plan, self.target.full)

    def _seen(self, duel: AlternatingRuns, found: Series, plan: Plan,
              mode: BenchmarkMode) -> ModeResults:
        again = duel.again() if stopping_rule.repeat(found, plan) else None
        return ModeResults(target=self.target, measure=self.measure, plan=plan, mode=mode,
                    pairs=tuple(duel.pairs), series=found, again=again)

    def _expect_same_rows(self, bench: BenchmarkRunner, quick: Series) -> None:
        """Hold the quick command to its claim that it measures the rows of the full one."""
        with self._lock() as held:
            read = AlternatingRuns(bench, self.target.full, self.settings.plan).reading(
                "incumbent", held
            )
        try:
            columns = quick.found.columns
            if missing := [name for name in columns if name not in read.table.columns]:
                raise BenchmarkFault("changed-rows", f"has the column {missing[0]!r} alone")
            row_keys.expect_same(row_keys.keyed(read.table, columns), quick.keys, columns,
                             whose="the full command")
        except BenchmarkFault as fault:
            raise InputError(f"the quick command {fault.what}", where="representative_shapes", fix=(
                "they are said to be all of target_shapes: list those that are measured")) from None

    def _side(self, name: str, tree: str) -> WorkingCopy:
        return WorkingCopy(name, Path(tree), self._folder / name, self._place,
                    self.target.frozen)

    def _build(self, side: WorkingCopy) -> None:
        commands = [c for c in (self.target.setup_command, self.target.build_command) if c]
        if not commands:
            return
        self._progress("building", side.name, None)
        try:
            for command in commands:
                self._work(side, command)
        except BenchmarkFault as fault:
            told = BenchmarkFault("build", f"does not build: {fault.what}")
            raise (BrokenIncumbent(told) if side.name == "incumbent" else told) from None

    def _test(self) -> None:
        """Run the project's tests on the candidate, in a copy that no benchmark sees."""
        for name, command in self.settings.tests:
            self._progress("testing", f"the project's {name}", None)
            side = self._side("tests", self.trees.candidate)
            try:
                self._build(side)
                self._work(side, command)
            except BenchmarkFault as fault:
                raise BenchmarkFault(
                    fault.kind, f"the project's {name} fail: {fault.what}"
                ) from None
            except ValueError as error:
                raise InputError(str(error), where=name) from None

    def _work(self, side: WorkingCopy, command: str) -> None:
        """Run what is not timed: beside others on a CPU, with the card to itself on a GPU."""
        if self.on_cpu:
            side.run(command, yields=self._yields)
            return
        with self._lock() as held:
            side.run(command, lock=held)

    @contextmanager
    def _lock(self) -> Iterator[DeviceLock]:
        with device_lock.acquire(*self.device.lock_names, shared_device=self.on_cpu,
                                 cancel=self._cancel,
                          on_wait=lambda text: self._progress("waiting", text, None)) as held:
            yield held
