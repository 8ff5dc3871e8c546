"""The machine: space, devices, what is visible of them, and how quiet it is."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from engine.doctor.machine_check import MachineCheck
from harness.devices import inventory
from harness.devices.device import Device
from harness.errors import KoptError
from harness.isolation import device_lock

GIB = 1 << 30
SPACE_NEEDED, SPACE_WANTED = GIB // 4, 2 * GIB
FILES_WANTED = 1024


def checks(workspace: Path) -> Iterator[MachineCheck]:
    """Yield how the machine stands."""
    yield space(workspace)
    yield locks()
    listed, problems = inventory.survey()
    yield from cards(listed, problems)
    yield visibility()
    yield load(next((device.cores for device in listed if device.kind == "cpu"), None) or 1)
    yield limits()


def space(workspace: Path) -> MachineCheck:
    """Look at the workspace, or at where it would be made."""
    there = workspace.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return MachineCheck("workspace", "missing", f"{there} is no folder",
                     "name another with --workspace")
    if not os.access(there, os.W_OK | os.X_OK):
        return MachineCheck("workspace", "missing", f"{there} is not writable",
                     "name another with --workspace or KOPT_WORKSPACE")
    free = shutil.disk_usage(there).free
    found = f"{workspace}, {free / GIB:.1f} GiB free"
    if free < SPACE_NEEDED:
        return MachineCheck("workspace", "missing", found, "make room, or name another")
    if free < SPACE_WANTED:
        return MachineCheck("workspace", "warn", found, "a long campaign may fill it: kopt prune")
    return MachineCheck("workspace", "ok", found)


def locks() -> MachineCheck:
    """Look at the folder of the device locks, which all users of the box share."""
    try:
        folder = device_lock.lock_directory()
        device_lock.holder("cpu")
    except KoptError as error:
        return MachineCheck("device locks", "missing", f"{error.where}: {error.what}", error.fix)
    return MachineCheck("device locks", "ok", str(folder))


def cards(listed: list[Device], problems: list[str]) -> Iterator[MachineCheck]:
    """Yield one line per device and per vendor that could not be asked."""
    for device, state in zip(listed, inventory.states(listed), strict=True):
        found = f"{device.name}, {device.arch}"
        if device.kind == "cpu":
            yield MachineCheck("cpu", "ok", f"{found}, {device.cores} cores allowed")
        elif device.unusable:
            yield MachineCheck(device.id, "warn", f"{found}: {device.unusable}")
        elif state.problem:
            yield MachineCheck(device.id, "warn", f"{found}: {state.problem}")
        else:
            yield MachineCheck(device.id, "note" if device.note else "ok",
                        f"{found}{': ' if device.note else ''}{device.note}")
    for problem in problems:
        yield MachineCheck("gpu", "warn", problem, "look at the driver")
    if not problems and all(device.kind == "cpu" for device in listed):
        yield MachineCheck(
            "gpu",
            "note",
            "none: C kernels are measured on the CPU; of a Triton kernel "
            "only correctness can be told",
        )


def visibility() -> MachineCheck:
    names = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    given = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
    if not given:
        return MachineCheck("visible devices", "ok", "all: no *_VISIBLE_DEVICES is set")
    return MachineCheck("visible devices", "note", ", ".join(given), "kopt uses no other device")


def load(cores: int) -> MachineCheck:
    """Look for others that compute: measurements on a busy CPU take longer and say less."""
    running = os.getloadavg()[0]
    found = f"{running:.1f} processes running on {cores} cores"
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    with contextlib.suppress(OSError):  # virtual machines and containers have none
        found += f", governor {governor.read_text().strip()}"
    if running > cores:
        return MachineCheck("load", "warn", found, "CPU measurements will be noisy")
    return MachineCheck("load", "ok", found)


def limits() -> MachineCheck:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    told = "unlimited" if processes == resource.RLIM_INFINITY else str(processes)
    found = f"{files} open files, {told} processes"
    if files < FILES_WANTED:
        return MachineCheck("limits", "warn", found, f"ulimit -n {FILES_WANTED}")
    return MachineCheck("limits", "ok", found)
