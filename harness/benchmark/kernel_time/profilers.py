"""Choose the tool that measures kernel time on a device."""

from __future__ import annotations

from harness.benchmark.kernel_time import cupti, rocprof
from harness.benchmark.kernel_time.cupti import CuptiProfiler
from harness.benchmark.kernel_time.profile import Profiler
from harness.benchmark.kernel_time.rocprof import RocprofProfiler
from harness.devices.device import Device


def profiler_for(device: Device, python: str | None = None) -> Profiler | None:
    """Return the profiler of a card for programs of this Python; None on a CPU."""
    if device.kind == "nvidia":
        return CuptiProfiler(cupti.cupti_libraries(python))
    return RocprofProfiler(rocprof.find_program()) if device.kind == "amd" else None
