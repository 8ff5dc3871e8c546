"""Run a project's benchmark as it is, in a copy, and return the table that it writes."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from engine.discovery.project import benchmark
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
from harness.benchmark.runs.workdir import COMMAND_LIMITS, CommandEnvironment, WorkingCopy
from harness.benchmark.spec.command_target import BenchmarkMode, CommandTarget
from harness.benchmark.spec.metric_units import RowCost
from harness.devices import inventory
from harness.devices.device import Device
from harness.errors import DeviceFault, InputError, Refused
from harness.formats import file_copy
from harness.formats.quantities import listed
from harness.isolation.device_lock import DeviceLock

MOST_BYTES = 2 << 30
CSV = ".csv"
MOST_NAMED = 3
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
            return _run(session, tree, [mode], run=_first_run)[0][0]
        except BenchmarkFault as fault:
            subject = "" if fault.what.startswith(mode.csv) else "the benchmark "
            raise InputError(f"{subject}{fault.what}", where=mode.command,
                             fix=fault.fix) from None
        except ValueError as error:
            raise InputError(str(error), where=mode.command) from None


def _run(session: CommandSession, tree: Path, modes: Sequence[BenchmarkMode],
         on_wait: Callable[[str], None] = lambda _: None,
         run: Callable[[WorkingCopy, BenchmarkMode, DeviceLock], tuple[ResultTable, float]]
         = WorkingCopy.benchmark) -> list[tuple[ResultTable, float]]:
    """Set up and build a copy; return the table and the seconds of each run."""
    measured = []
    with session:
        copy = session.copy("incumbent", tree)
        session.build(copy)
        for mode in modes:
            with session.lock() as held:
                on_wait("")
                measured.append(run(copy, mode, held))
    return measured


def _first_run(copy: WorkingCopy, mode: BenchmarkMode,
               held: DeviceLock) -> tuple[ResultTable, float]:
    """Run a benchmark that is new to kopt; where it gives no rows, name the tables it wrote."""
    before = _tables(copy.tree)
    try:
        table, wall_s = copy.benchmark(mode, held)
        if not table.rows:
            state = "has a header and no rows" if table.columns else "is empty"
            raise BenchmarkFault("empty-table", f"{mode.csv} {state}",
                                 fix="let the benchmark write a row for each shape")
    except BenchmarkFault as fault:
        written = [path for path, at in _tables(copy.tree).items()
                   if before.get(path) != at and path.as_posix() != mode.csv]
        tables = [path for path in written if path.suffix == CSV] or written
        if fault.kind not in ("unreadable", "missing-file", "empty-table") or not tables:
            raise
        raise BenchmarkFault(
            fault.kind, f"{fault.what}; it wrote {listed([*map(str, tables)], MOST_NAMED)}",
            fix=_flag(tables, mode.command)) from None
    return table, wall_s


def _tables(tree: Path) -> dict[PurePath, int]:
    """Return the CSV and JSON files of a tree, with the times of their last writes."""
    return {path.relative_to(tree): path.lstat().st_mtime_ns
            for path in sorted(tree.rglob("*")) if path.suffix in (CSV, ".json") and path.is_file()}


def _flag(tables: Sequence[PurePath], command: str) -> str:
    """Return the flag that names a table, or joins several of one folder."""
    folders = {path.parent for path in tables}
    if len(tables) == 1 or len(folders) > 1 or tables[0].suffix != CSV:
        return f"--csv {tables[0]}"
    command = benchmark.REDIRECTED.sub("", command).rstrip()
    return f"if each has a row for each shape: --benchmark '{command} && cat " \
        f"{folders.pop() / f'*{CSV}'} > all{CSV}'"


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
