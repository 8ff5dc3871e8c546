"""Run a target's commands: a folder for working copies, a device and its lock, an environment."""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

from harness.benchmark.runs import result_table
from harness.benchmark.runs.clean_runs import CleanRuns
from harness.benchmark.runs.result_table import BenchmarkFault, TableReading
from harness.benchmark.runs.run_pairs import BrokenIncumbent, RunPair
from harness.benchmark.runs.workdir import COMMAND_LIMITS, CommandEnvironment, WorkingCopy
from harness.benchmark.spec.command_target import BenchmarkMode, CommandTarget
from harness.benchmark.spec.metric_units import RowCost
from harness.devices import inventory
from harness.devices.device import Device
from harness.formats import file_copy
from harness.isolation import device_lock, guard
from harness.isolation.device_lock import DeviceLock
from harness.settings import Settings

ORDER = ("incumbent", "candidate")
"""The order of the sides in odd pairs; even pairs reverse it."""
Progress = Callable[[str, str, float | None], None]
"""Receives a stage, its detail, and the part of it that is done (0 to 1, None if unknown)."""


def environment_of(device: Device, settings: Settings, timeout_s: float,
                   cancel: threading.Event | None) -> CommandEnvironment:
    """Return the environment of a target's commands on a device."""
    return CommandEnvironment(
        env={**settings.env, **device.visible_env}, python=settings.python, nodes=device.all_nodes,
        limits=replace(COMMAND_LIMITS, wall_s=timeout_s), cancel=cancel, warm=settings.warm_cache)


class CommandSession:
    """Makes working copies of trees and runs their commands; leaving it deletes its folder."""

    def __init__(self, folder: Path, device: Device, environment: CommandEnvironment, *,
                 commands: Sequence[str] = (), frozen: Sequence[str] = (),
                 progress: Progress | None = None,
                 on_wait: Callable[[str], None] | None = None) -> None:
        self.folder, self.device, self.environment = folder, device, environment
        self.is_cpu = device.kind == "cpu"
        self._commands, self._frozen = tuple(filter(None, commands)), frozen
        self.progress = progress or (lambda stage, detail, done: None)
        self._on_wait = on_wait or (lambda text: self.progress("waiting", text, None))
        self._places: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        file_copy.remove(self.folder)

    def copy(self, name: str, tree: str | Path) -> WorkingCopy:
        """Return a working copy of a tree; its path does not reveal which side it is."""
        place = self._places.setdefault(name, secrets.token_hex(4))
        return WorkingCopy(name, Path(tree), self.folder / place, self.environment, self._frozen,
                           hidden=self.folder)

    @contextmanager
    def lock(self) -> Iterator[DeviceLock]:
        """Hold the device's lock: nothing else is measured there; a CPU's pauses other work."""
        with device_lock.acquire(*self.device.lock_names, cancel=self.environment.cancel,
                                 on_wait=self._on_wait,
                                 is_idle=partial(inventory.is_idle, self.device)) as held:
            yield held

    def measure(self, copy: WorkingCopy, mode: BenchmarkMode, target: CommandTarget,
                row_cost: RowCost, held: DeviceLock,
                limit_s: float = math.inf) -> TableReading:
        """Run a copy's benchmark once and judge its table. Raises BenchmarkFault."""
        table, wall_s = copy.benchmark(mode, held, limit_s)
        return result_table.judge_table(table, target, row_cost, csv=mode.csv, wall_s=wall_s)

    def run_untimed(self, copy: WorkingCopy, command: str) -> None:
        """Run a command in parallel with others on a CPU, with the card to itself on a GPU."""
        if self.is_cpu:
            copy.run(command, yields=device_lock.turnstile())
            return
        with self.lock() as held:
            copy.run(command, lock=held)

    def build(self, copy: WorkingCopy) -> None:
        """Run the setup and build commands. Raises BenchmarkFault of the kind "build"."""
        try:
            for command in self._commands:
                self.run_untimed(copy, command)
        except BenchmarkFault as fault:
            raise BenchmarkFault("build", f"does not build: {fault.what}") from None

    def rehearse(self, tree: str | Path, commands: Sequence[str]) -> BenchmarkFault | None:
        """Build a tree and run commands, on a GPU only; if one fails, run later copies unconfined.

        A GPU may not work inside namespaces. The tree must be the user's own code: what an agent
        has written could fail here on purpose. Returns the failure, None if there is none.
        """
        if self.is_cpu or guard.confinement_problem():
            return None
        copy = self.copy("rehearsal", tree)
        try:
            self.build(copy)
            with self.lock() as held:
                for command in commands:
                    copy.run(command, lock=held)
        except BenchmarkFault as fault:
            self.environment = replace(self.environment, confined=False)
            return fault
        return None


class BenchmarkSession(CommandSession):
    """A session with one benchmark target: its row cost, copies by name, notes, clean runs."""

    def __init__(self, target: CommandTarget, device: Device, settings: Settings,
                 progress: Progress | None, cancel: threading.Event | None) -> None:
        self.target, self.settings = target, settings
        self.row_cost = RowCost(target)
        self.notes = [self.row_cost.note]
        self.clean_runs = CleanRuns()
        self.copies: dict[str, WorkingCopy] = {}
        super().__init__(
            Path(settings.scratch) / "reported", device,
            replace(environment_of(device, settings, target.timeout_s, cancel),
                    note=self.notes.append),
            commands=(target.setup_command, target.build_command), frozen=target.frozen,
            progress=progress)
        if reason := guard.confinement_problem():
            self.notes.append(f"candidates are not confined on this machine: {reason}")

    def built(self, name: str, tree: str | Path) -> WorkingCopy:
        """Return a built copy. Raises BenchmarkFault, for the incumbent BrokenIncumbent."""
        copy = self.copies[name] = self.copy(name, tree)
        self.build(copy)
        return copy

    def build(self, copy: WorkingCopy) -> None:
        if self._commands:
            self.progress("building", copy.name, None)
        try:
            super().build(copy)
        except BenchmarkFault as fault:
            raise (BrokenIncumbent(fault) if copy.name == "incumbent" else fault) from None
        copy.note_built()

    def rewritten(self) -> set[str]:
        """Return files of the tree that the candidate's runs write to and the incumbent's do not.
        """
        return self.copies["candidate"].rewritten() - self.copies["incumbent"].rewritten()

    def check_confinement(self, tree: str | Path) -> None:
        """Run later copies unconfined if the baseline works only so. Raises BrokenIncumbent."""
        command = (self.target.quick or self.target.full).command
        fault = self.rehearse(tree, [command])
        if fault is None:
            return
        try:
            copy = self.built("rehearsal", tree)
            with self.lock() as held:
                copy.run(command, lock=held)
        except BenchmarkFault as again:
            raise BrokenIncumbent(again) from None
        self.notes.append(
            f"candidates are not confined: inside namespaces the benchmark {fault.what}")

    def run(self, name: str, mode: BenchmarkMode, held: DeviceLock) -> TableReading:
        """Run one copy's benchmark. Raises BenchmarkFault, or BrokenIncumbent for the incumbent."""
        check = self.target.check
        try:
            reading = self.clean_runs.run(name, lambda: self.measure(
                self.copies[name], mode, self.target, self.row_cost, held))
            if name == "incumbent":
                reading.expect_passed(
                    "" if check.rule else f"say what passes, such as check: '{check.column} == 0'")
        except BenchmarkFault as fault:
            raise (BrokenIncumbent(fault) if name == "incumbent" else fault) from None
        return reading

    def run_pair(self, mode: BenchmarkMode, number: int) -> RunPair:
        """Run each side's benchmark once, undisturbed. Raises what `run` and CleanRuns raise."""
        with self.lock() as held:
            readings = self.clean_runs(
                lambda: {name: self.run(name, mode, held)
                         for name in (ORDER if number % 2 else ORDER[::-1])},
                alone=lambda: self.run("incumbent", mode, held))
        return RunPair(incumbent=readings["incumbent"], candidate=readings["candidate"])
