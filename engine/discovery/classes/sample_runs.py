"""Run a project's benchmark as it is, in a copy, and return the table that it writes."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from engine.discovery.project.sources import NO_SOURCES
from engine.verify import gate
from harness.benchmark.runs.command_session import CommandSession
from harness.benchmark.runs.result_table import (
    BenchmarkFault,
    ResultTable,
    TableReading,
    judge_table,
)
from harness.benchmark.runs.run_pairs import BrokenIncumbent
from harness.benchmark.runs.workdir import COMMAND_LIMITS, CommandEnvironment
from harness.benchmark.spec.command_target import BenchmarkMode, CommandTarget
from harness.benchmark.spec.metric_units import RowCost
from harness.devices import inventory
from harness.devices.device import Device
from harness.errors import DeviceFault, InputError, Refused
from harness.formats import file_copy

MOST_BYTES = 2 << 30
RUN_S = 1800.0
"""Seconds that a run may take if the project states no limit."""


def run_benchmark(target: CommandTarget, tree: Path, device: Device, folder: Path, *,
                  runs: int = 1, more_modes: Sequence[BenchmarkMode] = (),
                  python: str | None = None, env: Mapping[str, str] | None = None,
                  cancel: threading.Event | None = None,
                  on_wait: Callable[[str], None] = lambda _: None) -> list[TableReading]:
    """Run the full benchmark of a checkout `runs` times, then other modes, below `folder`.

    The target's setup and build commands run first. While the device is busy, `on_wait` is called
    with the reason, and with "" when it is free. Raises BrokenIncumbent for a benchmark that gives
    no table, and Cancelled.
    """
    row_cost = RowCost(target)
    modes = [*[target.full] * runs, *more_modes]
    session = CommandSession(
        folder / "runs", device, _environment(device, target.timeout_s, python, env, cancel),
        commands=(target.setup_command, target.build_command), frozen=target.frozen,
        on_wait=on_wait)
    try:
        return [judge_table(table, target, row_cost, csv=mode.csv, wall_s=wall_s)
                for mode, (table, wall_s) in zip(modes, _run(session, tree, modes, on_wait),
                                                 strict=True)]
    except BenchmarkFault as fault:
        raise BrokenIncumbent(fault) from None


def run_once(project: Path, mode: BenchmarkMode, *, setup: str = "", build: str = "",
             device: str = "auto",
             on_wait: Callable[[str], None] | None = None) -> ResultTable:
    """Set up, build and run a project's benchmark once on an idle device, and return its table.

    The project is copied with its uncommitted changes. Raises InputError for a benchmark that gives
    no table, DeviceFault if no card is idle.
    """
    card = inventory.find(device)
    if busy := gate.look(card):
        raise DeviceFault(f"{card.id} is not idle: {busy}", where="device",
                          fix="try again later, or --no-run")
    _expect_small(project)
    with tempfile.TemporaryDirectory(prefix="kopt-") as scratch:
        tree = Path(scratch) / "project"
        file_copy.copy_sources(project, tree, skipped=NO_SOURCES)
        session = CommandSession(Path(scratch) / "runs", card, _environment(card, RUN_S),
                                 commands=(setup, build), on_wait=on_wait)
        try:
            return _run(session, tree, [mode])[0][0]
        except BenchmarkFault as fault:
            raise InputError(f"the benchmark {fault.what}", where=mode.command,
                             fix=fault.fix) from None
        except ValueError as error:
            raise InputError(str(error), where=mode.command) from None


def _run(session: CommandSession, tree: Path,
         modes: Sequence[BenchmarkMode], on_wait: Callable[[str], None] = lambda _: None,
         ) -> list[tuple[ResultTable, float]]:
    """Set up and build a copy; return the table and the seconds of each run."""
    measured = []
    with session:
        copy = session.copy("incumbent", tree)
        session.build(copy)
        for mode in modes:
            with session.lock() as held:
                on_wait("")
                measured.append(copy.benchmark(mode, held))
    return measured


def _environment(device: Device, timeout_s: float, python: str | None = None,
                 env: Mapping[str, str] | None = None,
                 cancel: threading.Event | None = None) -> CommandEnvironment:
    """Return the environment of the project's own commands: on a GPU they run unconfined."""
    return CommandEnvironment(
        env={**(env or {}), **device.visible_env}, python=python, cancel=cancel,
        limits=replace(COMMAND_LIMITS, wall_s=timeout_s), confined=device.kind == "cpu")


def _expect_small(project: Path) -> None:
    """Raise Refused for a project that is too large to be copied for one run."""
    size = 0
    for folder, names, files in os.walk(project):
        names[:] = [name for name in names if name not in NO_SOURCES]
        size += sum(os.lstat(os.path.join(folder, file)).st_size for file in files)
        if size > MOST_BYTES:
            raise Refused("the project is larger than 2 GiB: it is not copied for one run",
                          where=str(project), fix="use --no-run")
