"""Telemetry samples of an NVIDIA card, and whether two processes may share it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.devices import inventory, nvml
from harness.devices.device import Device
from harness.devices.monitoring.telemetry import Sample
from harness.devices.nvidia import NvmlReader

ONE_PROCESS = "both kernels run in one process, where one can reach the other's times and answers"
EXCLUSIVE = ("exclusive-process", "exclusive-thread")


class NvmlSource:
    """Reads one card or MIG instance through NVML; the first sample loads the library."""

    def __init__(self, uuid: str, library: Any = None) -> None:
        self._uuid, self._nvml = uuid, library
        self._card: _Card | None = None

    def sample(self) -> Sample:
        """Read the card, which takes under a millisecond on a healthy one. Raises NVMLError."""
        if self._card is None:
            if self._nvml is None:
                self._nvml = nvml.load()
            self._nvml.nvmlInit()
            self._card = _Card(self._nvml, self._uuid)
        try:
            return self._card.sample()
        except self._nvml.NVMLError:
            self._card = None  # a lost card that is back has a new handle
            raise


class _Card(NvmlReader):
    """An open handle. A MIG instance has its own processes; all other values are its card's."""

    def __init__(self, library: Any, uuid: str) -> None:
        super().__init__(library)
        self.place = library.nvmlDeviceGetHandleByUUID(uuid)
        parent = self._ask(library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, self.place) \
            if uuid.startswith("MIG-") else None
        self.card = self.place if parent is None else parent

    def sample(self) -> Sample:
        library, at_ns = self.nvml, time.perf_counter_ns()
        faults: list[Exception] = []

        def read(call: Callable[..., Any], handle: Any, *arguments: Any) -> Any:
            try:
                return self._ask(call, handle, *arguments)
            except library.NVMLError as fault:  # a proxy of a driver may not support all calls
                faults.append(fault)
                return None

        sm = read(library.nvmlDeviceGetClockInfo, self.card, library.NVML_CLOCK_SM)
        memory = read(library.nvmlDeviceGetClockInfo, self.card, library.NVML_CLOCK_MEM)
        heat = read(library.nvmlDeviceGetTemperature, self.card, library.NVML_TEMPERATURE_GPU)
        power = read(library.nvmlDeviceGetPowerUsage, self.card)
        reasons = read(library.nvmlDeviceGetCurrentClocksEventReasons, self.card)
        if reasons is None:  # its name before driver 535
            reasons = read(library.nvmlDeviceGetCurrentClocksThrottleReasons, self.card)
        running = read(library.nvmlDeviceGetComputeRunningProcesses, self.place)
        if faults and all(value is None for value in (sm, memory, heat, power, reasons, running)):
            raise faults[-1]
        return Sample(at_ns=at_ns, sm_mhz=sm, memory_mhz=memory, temperature_c=heat,
                      power_w=None if power is None else power / 1000, reasons=reasons or 0,
                      pids=None if running is None else
                      tuple(process.pid for process in running))


@dataclass(frozen=True, kw_only=True)
class SharingMode:
    """How processes may share a device: its compute mode, and whether it is a MIG instance."""

    compute: str = ""
    mig: bool = False

    @property
    def prohibited(self) -> bool:
        return self.compute == "prohibited"

    @property
    def one_process(self) -> bool:
        """Whether incumbent and candidate must share one process."""
        return self.mig or self.compute in EXCLUSIVE

    @property
    def note(self) -> str:
        """The note for a verdict; empty for a device that several processes may share."""
        if self.prohibited:
            return "PROHIBITED: no process may use the card"
        why = "a MIG instance" if self.mig else self.compute.replace("-", "_").upper()
        return f"{why}: {ONE_PROCESS}" if self.one_process else ""


def sharing_mode(device: Device) -> SharingMode:
    """Return a device's present mode, or the listed one if the card does not answer."""
    if device.kind != "nvidia":
        return SharingMode()
    listed = "exclusive-process" if "EXCLUSIVE_PROCESS" in device.note else ""
    return SharingMode(compute=inventory.state(device).compute_mode or listed,
                       mig=device.uuid.startswith("MIG-"))
