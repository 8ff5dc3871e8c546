"""Runs of a project's benchmark as it is, in a copy, to see the table that it writes."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from engine.verify import gate
from harness.benchmark.runs.csv_reader import CsvReader
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
from harness.isolation import device_lock
from harness.isolation.device_lock import DeviceLock

LEFT_OUT = (".git", ".venv", "venv", "node_modules", "workspace", "__pycache__")
MOST_BYTES = 2 << 30


def readings(target: CommandTarget, tree: Path, device: Device, folder: Path, *, runs: int = 1,
             also: Sequence[BenchmarkMode] = (), python: str | None = None,
             env: Mapping[str, str] | None = None, cancel: threading.Event | None = None,
             on_wait: Callable[[str], None] | None = None) -> list[TableReading]:
    """Run the full benchmark of a checkout some times, then `also`, in a copy below `folder`.

    The target's setup and build commands run first. Raises BrokenIncumbent for a benchmark that
    gives no table, Cancelled.
    """
    measure = RowCost(target)
    try:
        with _opened(tree, device, folder, target.timeout_s, python=python, env=env or {},
                     frozen=target.frozen, cancel=cancel) as side, \
                CsvReader(folder / "reader", python, cancel) as reader:
            found = []
            for number, mode in enumerate([*[target.full] * runs, *also]):
                with device_lock.acquire(*device.lock_names, shared_device=device.kind == "cpu",
                                  cancel=cancel, on_wait=on_wait) as held:
                    if not number:
                        _build(side, (target.setup_command, target.build_command), held)
                    table, wall_s = side.benchmark(mode, reader, held)
                found.append(judge_table(table, target, measure, csv=mode.csv, wall_s=wall_s))
    except BenchmarkFault as fault:
        raise BrokenIncumbent(fault) from None
    return found


def table(project: Path, mode: BenchmarkMode, *, setup: str = "", build: str = "",
          device: str = "auto", timeout_s: float = 1800.0,
          on_wait: Callable[[str], None] | None = None) -> ResultTable:
    """Set up, build and run a benchmark once and return its table, when nobody else measures there.

    The project is taken as it lies there. Raises InputError for a benchmark that gives no table,
    DeviceFault where no card is idle.
    """
    card = inventory.find(device)
    if busy := gate.look(card):
        raise DeviceFault(f"{card.id} is not idle: {busy}", where="device",
                          fix="try again later, or --no-run")
    _expect_small(project)
    with tempfile.TemporaryDirectory(prefix="kopt-") as made:
        folder = Path(made)
        shutil.copytree(project, folder / "project", symlinks=True,
                        ignore=shutil.ignore_patterns(*LEFT_OUT))
        try:
            with _opened(folder / "project", card, folder, timeout_s) as side, \
                    CsvReader(folder / "reader") as reader, \
                    device_lock.acquire(*card.lock_names, shared_device=card.kind == "cpu",
                                 on_wait=on_wait) as held:
                _build(side, (setup, build), held)
                return side.benchmark(mode, reader, held)[0]
        except BenchmarkFault as fault:
            raise InputError(f"the benchmark {fault.what}", where=mode.command,
                             fix=fault.fix) from None
        except ValueError as error:
            raise InputError(str(error), where=mode.command) from None


@contextmanager
def _opened(tree: Path, device: Device, folder: Path, timeout_s: float, *,
            python: str | None = None, env: Mapping[str, str] | None = None,
            frozen: Sequence[str] = (),
            cancel: threading.Event | None = None) -> Iterator[WorkingCopy]:
    """Copy a tree for its commands, which are the project's own: on a GPU they are not confined."""
    place = CommandEnvironment(
        env={**(env or {}), **device.visible_env},
        python=python,
        cancel=cancel,
        limits=replace(COMMAND_LIMITS, wall_s=timeout_s),
        confined=device.kind == "cpu",
    )
    side = WorkingCopy("incumbent", tree, folder / "side", place, frozen)
    try:
        yield side
    finally:
        shutil.rmtree(side.folder, ignore_errors=True)


def _build(side: WorkingCopy, commands: Sequence[str], held: DeviceLock) -> None:
    for command in filter(None, commands):
        try:
            side.run(command, lock=held)
        except BenchmarkFault as fault:
            raise BenchmarkFault("build", f"does not build: {fault.what}") from None


def _expect_small(project: Path) -> None:
    """Refuse to copy what is large: it is left to the campaign, which copies what is committed."""
    size = 0
    for folder, names, files in os.walk(project):
        names[:] = [name for name in names if name not in LEFT_OUT]
        size += sum(os.lstat(os.path.join(folder, file)).st_size for file in files)
        if size > MOST_BYTES:
            raise Refused("the project is larger than 2 GiB: it is not copied for one run",
                          where=str(project), fix="use --no-run")
