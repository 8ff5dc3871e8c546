"""Check that a benchmark runs the files that candidates change: it must fail on a broken copy.

A benchmark that imports an installed package, or loads a library built elsewhere, would find every
candidate exactly as fast as the incumbent.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from harness.benchmark.runs.command_session import CommandSession, Progress, environment_of
from harness.benchmark.runs.result_table import BenchmarkFault, TableReading
from harness.benchmark.runs.workdir import WorkingCopy
from harness.benchmark.spec.command_target import CommandTarget
from harness.benchmark.spec.metric_units import RowCost
from harness.devices.device import Device
from harness.settings import Settings, Trees
from harness.verdict import Evidence, Verdict, rejected

SHOWN, UNSEEN, UNBUILT = "canary-shown", "canary-unseen", "canary-unbuilt"
"""The benchmark fails on the broken copy; passes; passes although the copy does not build."""


def check_canary(target: CommandTarget, trees: Trees, device: Device, settings: Settings, *,
                 progress: Progress | None = None,
                 cancel: threading.Event | None = None) -> Verdict:
    """Run the benchmark on the candidate's tree, which is broken, and return a rejection.

    Its evidence says whether the benchmark failed. The code is the user's own: it runs unconfined,
    so that only its broken files can stop it.
    """
    with CanaryCheck(target, trees, device, settings, progress, cancel) as check:
        evidence = check.evidence()
        notes = check.test_notes() if evidence.kind == SHOWN else ()
    return rejected(evidence.detail, evidence, candidate_id=settings.candidate_id, notes=notes,
                    device=device.name)


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
            return Evidence(kind=SHOWN, detail=f"the benchmark {fault.what}")
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

    def test_notes(self) -> tuple[str, ...]:
        """Return a note if the project's tests pass on the broken copy: they test other files."""
        if not self.settings.test_command:
            return ()
        copy = self.copy("tests", self.trees.candidate)
        self._build(copy)
        self.progress("canary", "the tests on the broken copy", None)
        try:
            with self.lock() as held:
                copy.run(self.settings.test_command, lock=held)
        except BenchmarkFault:
            return ()
        return ("the test command passes on a copy in which the files that candidates change are "
                "broken: it does not test them",)

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
