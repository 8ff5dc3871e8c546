"""Check that a benchmark runs the files that candidates change, and that it tells wrong results.

A benchmark that imports an installed package, or loads a library built elsewhere, would find every
candidate exactly as fast as the incumbent: it must fail on a broken copy. A benchmark whose check
always passes would find a candidate right that does a part of the work: its check must fail on a
copy that computes nothing.
"""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from pathlib import Path

from harness.benchmark.runs.command_session import CommandSession, Progress, environment_of
from harness.benchmark.runs.result_table import BenchmarkFault, ResultTable, TableReading
from harness.benchmark.runs.workdir import WorkingCopy
from harness.benchmark.spec import table_rules
from harness.benchmark.spec.command_target import CommandTarget
from harness.benchmark.spec.metric_units import RowCost
from harness.devices.device import Device
from harness.settings import Settings, Trees
from harness.verdict import BLIND_CHECK, Evidence, Verdict, rejected

SHOWN, UNSEEN, UNBUILT = "canary-shown", "canary-unseen", "canary-unbuilt"
"""The benchmark fails on the copy; passes; passes although the copy does not build."""


def check_canary(target: CommandTarget, trees: Trees, device: Device, settings: Settings, *,
                 progress: Progress | None = None,
                 cancel: threading.Event | None = None) -> Verdict:
    """Run the benchmark on the candidate's tree, wrong on purpose, and return a rejection.

    Its evidence says whether the benchmark failed. The code is the user's own: it runs unconfined,
    so that only its broken files can stop it.
    """
    with CanaryCheck(target, trees, device, settings, progress, cancel) as check:
        is_emptied = settings.canary == "emptied"
        evidence = check.evidence_of_check() if is_emptied else check.evidence()
        notes = check.test_notes() if evidence.kind == SHOWN and not is_emptied else ()
    return replace(rejected(
        evidence.detail, evidence, candidate_id=settings.candidate_id, notes=notes,
        device=device.name), incumbent_tree=settings.incumbent_tree)


class CanaryCheck(CommandSession):
    """The steps of one check."""

    def __init__(self, target: CommandTarget, trees: Trees, device: Device, settings: Settings,
                 progress: Progress | None, cancel: threading.Event | None) -> None:
        self.target, self.trees, self.settings = target, trees, settings
        super().__init__(
            Path(settings.scratch) / "canary", device,
            replace(environment_of(device, settings, target.timeout_s, cancel), confined=False,
                    nodes=()),
            commands=(target.setup_command, target.build_command), frozen=target.frozen,
            progress=progress)

    def evidence(self) -> Evidence:
        """Return whether the benchmark notices the broken copy, and by what."""
        broken = self.copy("broken", self.trees.candidate)
        build_error = self._build(broken)  # the benchmark runs all the same: it may use other files
        try:
            reading = self._read(broken)
        except BenchmarkFault as fault:
            return Evidence(kind=SHOWN, detail=f"it {build_error}" if build_error else
                            f"the benchmark {fault.what}")
        if reading.failed:
            row = reading.failed[0]
            return Evidence(kind=SHOWN, detail=f"row {row.row + 1}: {row.what}")
        expected, actual = self._row_count_of_incumbent(), len(reading.table.rows)
        if expected not in (None, actual):
            return Evidence(kind=SHOWN, detail=f"the benchmark writes {actual} rows, not "
                                               f"{expected}")
        if build_error:
            return Evidence(kind=UNBUILT, detail=f"a broken copy {build_error}, but the benchmark "
                                                 "passes anyway")
        return Evidence(kind=UNSEEN, detail="the benchmark passes on a broken copy")

    def evidence_of_check(self) -> Evidence:
        """Return whether a copy that computes nothing is noticed, and by what.

        Only the check counts, not the metrics: a copy that takes no time at all is no proof.
        """
        emptied, rule = self.copy("emptied", self.trees.candidate), self.target.check
        if build_error := self._build(emptied):
            return Evidence(kind=SHOWN, detail=f"it {build_error}")
        try:
            table = self._table(emptied)
            if rule.column not in table.columns or not table.rows:
                return Evidence(kind=SHOWN, detail="the benchmark writes no results")
        except BenchmarkFault as fault:
            return Evidence(kind=SHOWN, detail=f"the benchmark {fault.what}")
        passes = table_rules.parse(rule.rule).passes
        for row, cell in enumerate(table.column(rule.column)):
            if not passes(cell):
                return Evidence(kind=SHOWN, detail=f"row {row + 1}: {rule.column} is {cell!r}")
        if self._row_count_of_incumbent() not in (None, len(table.rows)):
            return Evidence(kind=SHOWN, detail="the benchmark writes another number of rows")
        if self.settings.test_command and not self._passes_tests():
            return Evidence(kind=SHOWN, detail="the project's tests fail")
        return Evidence(kind=UNSEEN, detail=BLIND_CHECK)

    def test_notes(self) -> tuple[str, ...]:
        """Return a note if the project's tests pass on the broken copy: they test other files."""
        if not self.settings.test_command or not self._passes_tests():
            return ()
        return ("the test command passes on a copy in which the files that candidates change are "
                "broken: it does not test them",)

    def _passes_tests(self) -> bool:
        copy = self.copy("tests", self.trees.candidate)
        self._build(copy)
        self.progress("canary", f"the tests on the {self.settings.canary} copy", None)
        try:
            with self.lock() as held:
                copy.run(self.settings.test_command, lock=held)
        except BenchmarkFault:
            return False
        return True

    def _row_count_of_incumbent(self) -> int | None:
        copy = self.copy("whole", self.trees.incumbent)
        self._build(copy)
        try:
            return len(self._read(copy).table.rows)
        except BenchmarkFault:
            return None

    def _build(self, copy: WorkingCopy) -> str:
        """Build a copy and return how that fails, "" if it does not."""
        self.progress("canary", f"building the {copy.name} copy", None)
        try:
            self.build(copy)
        except BenchmarkFault as fault:
            return fault.what
        return ""

    def _read(self, copy: WorkingCopy) -> TableReading:
        mode = self.target.quick or self.target.full
        self.progress("canary", f"the benchmark on the {copy.name} copy", None)
        with self.lock() as held:
            return self.measure(copy, mode, self.target, RowCost(self.target), held)

    def _table(self, copy: WorkingCopy) -> ResultTable:
        self.progress("canary", f"the benchmark on the {copy.name} copy", None)
        with self.lock() as held:
            table, _ = copy.benchmark(self.target.quick or self.target.full, held,
                                      self.settings.wall_s or math.inf)
        return table
