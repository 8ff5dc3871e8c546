"""Whether a benchmark runs the files that candidates change: it must not pass on a broken copy.

A benchmark that imports an installed package, or links a library that was built elsewhere, finds
every candidate exactly as fast as the incumbent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.benchmark.runs import result_table
from harness.benchmark.runs.csv_reader import CsvReader
from harness.benchmark.runs.result_table import BenchmarkFault, TableReading
from harness.benchmark.runs.workdir import COMMAND_LIMITS, CommandEnvironment, WorkingCopy
from harness.benchmark.spec.command_target import CommandTarget
from harness.benchmark.spec.metric_units import RowCost
from harness.devices.device import Device
from harness.formats import file_copy
from harness.isolation import device_lock
from harness.isolation.device_lock import DeviceLock
from harness.settings import Settings, Trees
from harness.verdict import Evidence, Verdict, rejected

Progress = Callable[[str, str, float | None], None]
SHOWN, UNSEEN, UNBUILT = "canary-shown", "canary-unseen", "canary-unbuilt"
"""Kinds of evidence: the broken copy showed in what the benchmark did; nothing of it did; it did in
the build alone.
"""


def check_canary(target: CommandTarget, trees: Trees, device: Device, settings: Settings, *,
           progress: Progress | None = None, cancel: threading.Event | None = None) -> Verdict:
    """Run the benchmark once on the candidate's tree, which is broken; a rejection, either way.

    Its evidence says whether that showed. The code is the user's own: it runs unconfined, so that
    nothing but its broken files can stop it.
    """
    return _Canary(target, trees, device, settings, progress, cancel).run()


class _Canary:
    def __init__(self, target: CommandTarget, trees: Trees, device: Device, settings: Settings,
                 progress: Progress | None, cancel: threading.Event | None) -> None:
        self.target, self.trees, self.device, self.settings = target, trees, device, settings
        self.on_cpu, self._cancel = device.kind == "cpu", cancel
        self._progress = progress or (lambda stage, detail, done: None)
        self._folder = Path(settings.scratch) / "canary"
        self._reader = CsvReader(self._folder / "reader", settings.python, cancel)
        self._place = CommandEnvironment(
            env={**settings.env, **device.visible_env}, python=settings.python, confined=False,
            limits=replace(COMMAND_LIMITS, wall_s=target.timeout_s), cancel=cancel,
            warm=settings.warm_cache)

    def run(self) -> Verdict:
        try:
            found = self._looked()
            notes = self._untested() if found.kind == SHOWN else ()
        finally:
            self._reader.close()
            file_copy.remove(self._folder)
        return replace(
            rejected(found.detail, candidate_id=self.settings.candidate_id, notes=notes,
                     device=self.device.name), evidence=(found,))

    def _looked(self) -> Evidence:
        """Return where the broken copy showed."""
        broken = self._side("broken", self.trees.candidate)
        unbuilt = self._built(broken)  # the benchmark must fail of itself: it may run another build
        try:
            reading = self._reading(broken)
        except BenchmarkFault as fault:
            return Evidence(kind=SHOWN, detail=f"the benchmark {fault.what}")
        if reading.failed:
            row = reading.failed[0]
            return Evidence(kind=SHOWN, detail=f"row {row.row + 1}: {row.what}")
        whole = self._side("whole", self.trees.incumbent)
        self._built(whole)
        rows, found = self._rows(whole), len(reading.table.rows)
        if rows not in (None, found):
            return Evidence(kind=SHOWN, detail=f"the benchmark writes {found} rows, not {rows}")
        if unbuilt:
            return Evidence(kind=UNBUILT, detail=(
                f"the build of a broken copy {unbuilt}, and the benchmark passes all the same"))
        return Evidence(kind=UNSEEN, detail="the benchmark passes on a broken copy")

    def _rows(self, side: WorkingCopy) -> int | None:
        try:
            return len(self._reading(side).table.rows)
        except BenchmarkFault:
            return None

    def _built(self, side: WorkingCopy) -> str:
        try:
            for command in (self.target.setup_command, self.target.build_command):
                if command:
                    self._progress("canary", f"building the {side.name} copy", None)
                    with self._lock() as held:
                        side.run(command, lock=held)
        except BenchmarkFault as fault:
            return fault.what
        return ""

    def _reading(self, side: WorkingCopy) -> TableReading:
        mode = self.target.quick or self.target.full
        self._progress("canary", f"the benchmark on the {side.name} copy", None)
        with self._lock() as held:
            found, wall_s = side.benchmark(mode, self._reader, held)
        return result_table.judge(
            found, self.target, RowCost(self.target), csv=mode.csv, wall_s=wall_s
        )

    def _untested(self) -> tuple[str, ...]:
        """Return a note if the project's tests pass on the broken copy: they look at another."""
        if not self.settings.test_command:
            return ()
        side = self._side("tests", self.trees.candidate)
        self._built(side)
        self._progress("canary", "the tests on the broken copy", None)
        try:
            with self._lock() as held:
                side.run(self.settings.test_command, lock=held)
        except BenchmarkFault:
            return ()
        return ("the test command passes on a copy in which the files that candidates change are "
                "broken: it does not test them",)

    def _side(self, name: str, tree: str) -> WorkingCopy:
        return WorkingCopy(name, Path(tree), self._folder / name, self._place, self.target.frozen)

    @contextmanager
    def _lock(self) -> Iterator[DeviceLock]:
        with device_lock.acquire(*self.device.lock_names, shared_device=self.on_cpu,
                                 cancel=self._cancel,
                          on_wait=lambda text: self._progress("waiting", text, None)) as held:
            yield held
