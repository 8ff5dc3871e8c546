"""The CPU as a device: the cores that this process may use, read from /proc."""

from __future__ import annotations

import os
import platform
import re
import threading
import time

from harness.devices.device import Device, DeviceState, Listing
from harness.formats.text import plain, read_text
from harness.verdict import BUSY

SAMPLE_S = 0.1
_lock = threading.Lock()
_last: list[tuple[int, int]] = []


def listing() -> Listing:
    """Return the CPU device with the cores in this process's affinity mask."""
    cores = len(os.sched_getaffinity(0))
    return Listing((Device(id="cpu", kind="cpu", name=_model_name(), uuid="cpu",
                           arch=platform.machine(), cores=cores, memory_bytes=_memory()[1]),))


def states(_: list[Device]) -> list[DeviceState]:
    """Return the load of the allowed cores since the last call, and the used memory."""
    used, total = _memory()
    clocks = re.findall(r"^cpu MHz\s*:\s*([\d.]+)$", read_text("/proc/cpuinfo"), re.MULTILINE)
    clock_mhz = round(sum(map(float, clocks)) / len(clocks), 1) if clocks else None
    return [DeviceState(device="cpu", at=time.time(), utilization_pct=_utilization(),
                        memory_used=used, memory_total=total, clock_mhz=clock_mhz)]


def load_note() -> str:
    """Return a note if more programs ran than there are cores, which scatters times; else ""."""
    running, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    return "" if running <= cores else (
        f"{BUSY}: {running:.1f} programs ran on {cores} cores in the last minute, so "
        "times scatter")


def _model_name() -> str:
    text = read_text("/proc/cpuinfo")
    for key in ("model name", "Hardware", "cpu model", "uarch"):
        if match := re.search(rf"^{key}\s*:\s*(.+)$", text, re.MULTILINE):
            return plain(" ".join(match[1].split()), 80)
    return platform.machine()


def _memory() -> tuple[int, int]:
    """Return (used, total) bytes; a limit of the control group replaces the total."""
    fields = dict(re.findall(r"^(\w+):\s+(\d+) kB$", read_text("/proc/meminfo"), re.MULTILINE))
    total, free = int(fields["MemTotal"]) * 1024, int(fields["MemAvailable"]) * 1024
    limit, used = read_text("/sys/fs/cgroup/memory.max"), read_text("/sys/fs/cgroup/memory.current")
    if limit.strip().isdigit() and used.strip().isdigit() and int(limit) < total:
        return int(used), int(limit)
    return total - free, total


def _utilization() -> float:
    with _lock:
        if not _last:
            _last.append(_cpu_times())
            time.sleep(SAMPLE_S)  # load is a difference: the first call needs a second reading
        busy, total = _cpu_times()
        busy_before, total_before = _last.pop()
        _last.append((busy, total))
    passed = total - total_before
    return round(100 * (busy - busy_before) / passed, 1) if passed > 0 else 0.0


def _cpu_times() -> tuple[int, int]:
    """Return (busy, total) clock ticks summed over the allowed cores."""
    allowed = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    busy = total = 0
    for line in read_text("/proc/stat").splitlines():
        name, *numbers = line.split()
        if name in allowed:
            ticks = [int(number) for number in numbers[:8]]
            total += sum(ticks)
            busy += sum(ticks) - ticks[3] - ticks[4]
    return busy, total
