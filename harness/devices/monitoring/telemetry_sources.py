"""Where telemetry samples come from, and whether two processes may share an NVIDIA card."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.devices import amd, inventory, nvidia
from harness.devices.device import Device
from harness.devices.monitoring.telemetry import Sample
from harness.devices.nvidia import NvmlReader
from harness.errors import EnvironmentFault

ONE_PROCESS = "both kernels run in one process, where one can reach the other's times and answers"
EXCLUSIVE = ("exclusive-process", "exclusive-thread")


class SmiSource:
    """Reads one AMD card through rocm-smi, amd-smi or both, each run of which takes a while.

    A sample has processes, temperature and power. It has no clocks, since the tools read those
    between blocks, and no throttling: amd-smi also calls a card throttled that is at its power
    limit, the normal state under a large kernel.
    """

    def __init__(self, device: Device) -> None:
        self._device = device

    def sample(self) -> Sample:
        """Read the card, which takes most of a second. Raises EnvironmentFault."""
        at_ns = time.perf_counter_ns()
        [state] = amd.states([self._device])
        if state.problem:
            raise EnvironmentFault(state.problem, where=self._device.id)
        temperature_c = state.temperature_c
        return Sample(
            at_ns=at_ns, temperature_c=None if temperature_c is None else round(temperature_c),
            power_w=state.power_w, pids=None if state.processes is None else
            tuple(process.pid for process in state.processes))


class NvmlSource:
    """Reads one card or MIG instance through NVML; the first sample loads the library."""

    def __init__(self, uuid: str, library: Any = None) -> None:
        self._uuid, self._nvml = uuid, library
        self._handles: tuple[Any, Any] | None = None

    def sample(self) -> Sample:
        """Read the card, which takes under a millisecond on a healthy one. Raises NVMLError."""
        if self._nvml is None:
            self._nvml = nvidia.load()
        try:
            if self._handles is None:
                self._nvml.nvmlInit()
                self._handles = self._open()
            return self._read(*self._handles)
        except self._nvml.NVMLError:
            self._handles = None  # a lost card that is back has a new handle
            raise

    def _open(self) -> tuple[Any, Any]:
        """Return the handles of the device and of its card, which differ for a MIG instance."""
        library = self._nvml
        handle = library.nvmlDeviceGetHandleByUUID(self._uuid)
        parent = NvmlReader(library).ask(
            library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle) \
            if self._uuid.startswith("MIG-") else None
        return handle, handle if parent is None else parent

    def _read(self, device: Any, card: Any) -> Sample:
        """Read a device's own processes; all other values are its card's."""
        library, at_ns = self._nvml, time.perf_counter_ns()
        faults: list[Exception] = []

        def read(call: Callable[..., Any], handle: Any, *arguments: Any) -> Any:
            try:
                return NvmlReader(library).ask(call, handle, *arguments)
            except library.NVMLError as fault:  # a proxy of a driver may not support all calls
                faults.append(fault)
                return None

        sm = read(library.nvmlDeviceGetClockInfo, card, library.NVML_CLOCK_SM)
        memory = read(library.nvmlDeviceGetClockInfo, card, library.NVML_CLOCK_MEM)
        heat = read(library.nvmlDeviceGetTemperature, card, library.NVML_TEMPERATURE_GPU)
        power = read(library.nvmlDeviceGetPowerUsage, card)
        reasons = read(library.nvmlDeviceGetCurrentClocksEventReasons, card)
        if reasons is None:  # its name before driver 535
            reasons = read(library.nvmlDeviceGetCurrentClocksThrottleReasons, card)
        running = read(library.nvmlDeviceGetComputeRunningProcesses, device)
        if faults and all(value is None for value in (sm, memory, heat, power, reasons, running)):
            raise faults[-1]
        return Sample(at_ns=at_ns, sm_mhz=sm, memory_mhz=memory, temperature_c=heat,
                      power_w=None if power is None else power / 1000, reasons=reasons or 0,
                      pids=None if running is None else
                      tuple(process.pid for process in running))


@dataclass(frozen=True, kw_only=True)
class SharingMode:
    """How processes may share a device: not at all, or incumbent and candidate in one process.

    `note` says so in a verdict; it is empty for a device that several processes may share.
    """

    prohibited: bool = False
    one_process: bool = False
    note: str = ""


def sharing_mode(device: Device) -> SharingMode:
    """Return a device's present mode, or that of the device list if the card does not answer."""
    if device.kind != "nvidia":
        return SharingMode()
    listed = "exclusive-process" if "EXCLUSIVE_PROCESS" in device.note else ""
    compute = inventory.state(device).compute_mode or listed
    if compute == "prohibited":
        return SharingMode(prohibited=True, note="PROHIBITED: no process may use the card")
    is_mig = device.uuid.startswith("MIG-")
    if not is_mig and compute not in EXCLUSIVE:
        return SharingMode()
    why = "a MIG instance" if is_mig else compute.replace("-", "_").upper()
    return SharingMode(one_process=True, note=f"{why}: {ONE_PROCESS}")
