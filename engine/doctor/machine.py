"""Checks of the machine: disk space, device locks, devices, load, process limits.

Also the warnings for the log of a campaign that starts on this machine.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.doctor import surroundings
from engine.doctor.tools import MachineCheck
from harness.benchmark.kernel_time.profilers import profiler_for
from harness.devices import inventory
from harness.devices.device import Device
from harness.errors import KoptError
from harness.formats.quantities import GIB
from harness.isolation import device_lock

SPACE_NEEDED, SPACE_WANTED = GIB // 4, 2 * GIB
FILES_WANTED = 1024


def checks(workspace: Path) -> Iterator[MachineCheck]:
    """Yield one check per resource and device."""
    yield space(workspace)
    yield locks()
    devices, problems = inventory.survey()
    yield from cards(devices, problems)
    yield from profilers(devices)
    yield visibility()
    yield load(next((device.cores for device in devices if device.kind == "cpu"), None) or 1)
    yield limits()


def space(workspace: Path) -> MachineCheck:
    """Check the workspace's disk, or the disk of the folder where it would be created."""
    folder = workspace.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        return MachineCheck("workspace", "missing", f"{folder} is not a folder",
                            "name another with --workspace")
    if not os.access(folder, os.W_OK | os.X_OK):
        return MachineCheck("workspace", "missing", f"{folder} is not writable",
                            "name another with --workspace or KOPT_WORKSPACE")
    free = shutil.disk_usage(folder).free
    facts = f"{workspace}, {free / GIB:.1f} GiB free"
    if free < SPACE_NEEDED:
        return MachineCheck("workspace", "missing", facts, "free some space, or name another")
    if free < SPACE_WANTED:
        return MachineCheck("workspace", "warn", facts,
                            "a long campaign may fill the disk: kopt prune removes old checkouts")
    return MachineCheck("workspace", "ok", facts)


def locks() -> MachineCheck:
    """Check the folder of the device locks, which all users of the machine share."""
    try:
        folder = device_lock.lock_directory()
        device_lock.holder("cpu")
    except KoptError as error:
        return MachineCheck("device locks", "missing", f"{error.where}: {error.what}", error.fix)
    return MachineCheck("device locks", "ok", str(folder))


def cards(devices: list[Device], problems: list[str]) -> Iterator[MachineCheck]:
    """Yield one check per device, and one per GPU vendor whose driver could not be queried."""
    for device, state in zip(devices, inventory.states(devices), strict=True):
        name = f"{device.name}, {device.arch}"
        if device.kind == "cpu":
            yield MachineCheck("cpu", "ok", f"{name}, {device.cores} cores allowed")
        elif device.unusable:
            yield MachineCheck(device.id, "warn", f"{name}: {device.unusable}")
        elif state.problem:
            yield MachineCheck(device.id, "warn", f"{name}: {state.problem}")
        else:
            yield MachineCheck(device.id, "note" if device.note else "ok",
                               f"{name}{': ' if device.note else ''}{device.note}")
    for problem in problems:
        yield MachineCheck("gpu", "warn", problem, "check the driver")
    if not problems and all(device.kind == "cpu" for device in devices):
        yield MachineCheck("gpu", "note", "none: C kernels are timed on the CPU; a Triton kernel "
                           "is only checked for correctness")


def profilers(devices: Sequence[Device], python: str | None = None) -> Iterator[MachineCheck]:
    """Yield for each kind of GPU a check of the profiler for a benchmark's kernel time."""
    for kind in dict.fromkeys(device.kind for device in devices):
        device = next(device for device in devices if device.kind == kind)
        profiler = profiler_for(device, python)
        if profiler is None:
            continue
        if profiler.missing:
            yield MachineCheck(
                "profiler", "warn", f"kernel time of a project's own benchmark is not measured: "
                f"{profiler.missing}", f"{profiler.fix}; without it, gains by the benchmark's "
                "own times are kept with approval: auto, and otherwise once a person has approved "
                "the first")
        else:
            yield MachineCheck("profiler", "ok", f"{profiler.tool} measures kernel time")


def visibility() -> MachineCheck:
    """Report the variables that hide GPUs from this process."""
    names = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    values = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
    if not values:
        return MachineCheck("visible devices", "ok", "all: no *_VISIBLE_DEVICES is set")
    return MachineCheck("visible devices", "note", ", ".join(values),
                        "kopt uses only these devices")


def load(cores: int) -> MachineCheck:
    """Check the load: on a busy CPU, measurements take longer and are less precise."""
    running = os.getloadavg()[0]
    facts = f"{running:.1f} processes running on {cores} cores"
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    with contextlib.suppress(OSError):  # virtual machines and containers have none
        facts += f", governor {governor.read_text().strip()}"
    if running > cores:
        return MachineCheck("load", "warn", facts, "CPU measurements will be noisy")
    return MachineCheck("load", "ok", facts)


def limits() -> MachineCheck:
    """Check the limit on open files; show the one on processes."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    most = "unlimited" if processes == resource.RLIM_INFINITY else str(processes)
    facts = f"{files} open files, {most} processes"
    if files < FILES_WANTED:
        return MachineCheck("limits", "warn", facts, f"ulimit -n {FILES_WANTED}")
    return MachineCheck("limits", "ok", facts)


def start_notices(devices: Sequence[Device], *, has_benchmark: bool = False,
                  python: str | None = None) -> list[MachineCheck]:
    """Return the checks that a campaign's log should show.

    These are a Slurm job or a login session whose end kills the campaign, a container and its
    limits, GPUs that are hidden, shared or restricted to one process, and a missing profiler where
    the target is the project's own benchmark.
    """
    notices = [surroundings.slurm(), surroundings.logind(), surroundings.container()]
    if gpus := [card for device in devices for card in device.cards if card.kind != "cpu"]:
        notices += [visibility(), *cards(gpus, [])]
        notices += profilers(gpus, python) if has_benchmark else ()
    return [check for check in notices if check.status in ("note", "warn")]
