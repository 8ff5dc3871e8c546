"""NVIDIA cards through NVML; a machine without the library simply has none."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import nvml
from harness.device import Device, DeviceState, Listing, Process
from harness.text import plain

REASONS = {
    0x1: "idle", 0x2: "application-clocks", 0x4: "sw-power-cap", 0x8: "hw-slowdown",
    0x10: "sync-boost", 0x20: "sw-thermal", 0x40: "hw-thermal", 0x80: "hw-power-brake",
    0x100: "display-clock",
}
COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
MIG_PARENT = "MIG is on: use one of its instances"


class Nvml:
    """Reads devices and states through an initialised pynvml module."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml

    def devices(self) -> list[Device]:
        found: list[Device] = []
        for index in range(self.nvml.nvmlDeviceGetCount()):
            handle = self.nvml.nvmlDeviceGetHandleByIndex(index)
            instances = self._instances(handle, index)
            found.append(self._device(handle, index, f"cuda:{index}",
                                      MIG_PARENT if self._mig(handle) else ""))
            found += instances
        return found

    def state(self, device: Device) -> DeviceState:
        """Read one device; a field that it does not support is None. Raises NVMLError when lost."""
        nvml, handle = self.nvml, self.nvml.nvmlDeviceGetHandleByUUID(device.uuid)
        used, total = self._memory(handle)
        ask = self._ask
        power = ask(nvml.nvmlDeviceGetPowerUsage, handle)
        limit = ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        rates = ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        mode = ask(nvml.nvmlDeviceGetComputeMode, handle)
        return DeviceState(
            device=device.id, at=time.time(), memory_used=used, memory_total=total,
            utilization_pct=None if rates is None else float(rates.gpu),
            temperature_c=ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            power_w=None if power is None else power / 1000,
            power_limit_w=None if limit is None else limit / 1000,
            clock_mhz=ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            processes=self._processes(handle), throttle=self._reasons(handle),
            compute_mode=COMPUTE_MODES.get(-1 if mode is None else mode, ""))

    def _device(self, handle: Any, index: int, id: str, unusable: str = "") -> Device:
        capability = self._ask(self.nvml.nvmlDeviceGetCudaComputeCapability, handle)
        mode = self._ask(self.nvml.nvmlDeviceGetComputeMode, handle)
        if mode == self.nvml.NVML_COMPUTEMODE_PROHIBITED:
            unusable = unusable or "its compute mode is PROHIBITED"
        exclusive = mode == self.nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
        return Device(
            id=id, kind="nvidia", index=index, name=plain(self.nvml.nvmlDeviceGetName(handle), 80),
            uuid=self.nvml.nvmlDeviceGetUUID(handle), memory_bytes=self._memory(handle)[1],
            arch="" if capability is None else "sm_{}{}".format(*capability), unusable=unusable,
            nodes=self._nodes(handle),
            note="EXCLUSIVE_PROCESS: one process at a time" if exclusive else "")

    def _nodes(self, handle: Any) -> tuple[str, ...]:
        """Return a card's own file; an instance of MIG has several, which are not told apart."""
        minor = self._ask(self.nvml.nvmlDeviceGetMinorNumber, handle)
        return () if minor is None or self._mig(handle) else (f"nvidia{minor}",)

    def _instances(self, card: Any, index: int) -> list[Device]:
        if not self._mig(card):
            return []
        found: list[Device] = []
        for place in range(self._ask(self.nvml.nvmlDeviceGetMaxMigDeviceCount, card) or 0):
            handle = self._ask(self.nvml.nvmlDeviceGetMigDeviceHandleByIndex, card, place)
            if handle is not None:
                found.append(self._device(handle, index, f"cuda:{index}:{place}"))
        return found

    def _mig(self, handle: Any) -> bool:
        modes = self._ask(self.nvml.nvmlDeviceGetMigMode, handle)
        return modes is not None and modes[0] == self.nvml.NVML_DEVICE_MIG_ENABLE

    def _memory(self, handle: Any) -> tuple[int | None, int | None]:
        """Return (used, total); the first version of the call counts reserved memory as used."""
        memory = self._ask(self.nvml.nvmlDeviceGetMemoryInfo, handle, self.nvml.nvmlMemory_v2) or \
            self._ask(self.nvml.nvmlDeviceGetMemoryInfo, handle)
        return (None, None) if memory is None else (memory.used, memory.total)

    def _processes(self, handle: Any) -> tuple[Process, ...] | None:
        running = self._ask(self.nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        if running is None:
            return None
        return tuple(Process(pid=one.pid, name=process_name(one.pid),
                             memory_bytes=one.usedGpuMemory) for one in running)

    def _reasons(self, handle: Any) -> tuple[str, ...]:
        mask = self._ask(self.nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        if mask is None:
            mask = self._ask(self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
        return tuple(name for bit, name in REASONS.items() if mask & bit)

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a call says, None where this device, driver or library has no answer."""
        try:
            return call(*arguments)
        except (self.nvml.NVMLError_NotSupported, self.nvml.NVMLError_FunctionNotFound,
                self.nvml.NVMLError_NoPermission, self.nvml.NVMLError_NotFound,
                self.nvml.NVMLError_InvalidArgument):
            return None


def process_name(pid: int) -> str:
    """Return a process's name, empty when it runs in another process namespace."""
    try:
        return plain(Path(f"/proc/{pid}/comm").read_text(errors="replace").strip(), 40)
    except OSError:
        return ""


def listing() -> Listing:
    """Return all NVIDIA devices; the problem is told only where a driver seems to be there."""
    library = nvml.load()
    try:
        library.nvmlInit()
        return Listing(tuple(Nvml(library).devices()))
    except library.NVMLError as error:
        has_driver = Path("/dev/nvidiactl").exists() or Path("/proc/driver/nvidia").exists()
        return Listing(problem=f"NVML: {plain(str(error), 200)}" if has_driver else "")


def states(devices: list[Device]) -> list[DeviceState]:
    """Return the state of each device; one that is lost gets a state with its problem."""
    library = nvml.load()
    found: list[DeviceState] = []
    for device in devices:
        try:
            library.nvmlInit()  # counted by the library: cheap after the first
            try:
                found.append(Nvml(library).state(device))
            finally:
                library.nvmlShutdown()
        except library.NVMLError as error:
            problem = f"NVML: {plain(str(error), 200)}"
            found.append(DeviceState(device=device.id, at=time.time(), problem=problem))
    return found
