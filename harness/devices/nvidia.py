"""NVIDIA cards through NVML; a machine without the library simply has none."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from harness.devices import nvml
from harness.devices.call_timeout import BoundedCaller, CallTimeout
from harness.devices.device import Device, DeviceProcess, DeviceState, Listing
from harness.formats.text import plain

REASONS = {
    0x1: "idle", 0x2: "application-clocks", 0x4: "sw-power-cap", 0x8: "hw-slowdown",
    0x10: "sync-boost", 0x20: "sw-thermal", 0x40: "hw-thermal", 0x80: "hw-power-brake",
    0x100: "display-clock",
}
COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
MIG_PARENT = "MIG is on: use one of its instances"
CARD_S = 10.0
"""For what a listing asks one card; a part of what it may take in all."""

_patience: dict[int, BoundedCaller[list[Device]]] = {}


class NvmlReader:
    """Reads devices and states through an initialised pynvml module."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml

    def devices(self) -> list[Device]:
        """Return all cards, each asked for itself: one that fails or hangs is marked, the others
        are as ever. Raises NVMLError where they cannot even be counted.
        """
        each = range(self.nvml.nvmlDeviceGetCount())
        asked = [_patience.setdefault(index, BoundedCaller()).ask(
            partial(self._listed, index), CARD_S) for index in each]
        found: list[Device] = []
        for index, answer in zip(each, asked, strict=True):
            try:
                found += answer()
            except CallTimeout as silence:
                found.append(_marked(f"cuda:{index}", index, str(silence)))
        return found

    def _listed(self, index: int) -> list[Device]:
        """Return a card and its instances of MIG, those that fail marked with the driver's words.
        """
        nvml, id = self.nvml, f"cuda:{index}"
        handle: Any = None
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            mig = self._mig(handle)
            card = self._device(handle, index, id, MIG_PARENT if mig else "")
            places = self._ask(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) if mig else 0
        except nvml.NVMLError as error:
            return [self._lost(handle, index, id, error)]
        return [card, *(one for place in range(places or 0)
                        if (one := self._instance(handle, index, place)))]

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

    def _instance(self, card: Any, index: int, place: int) -> Device | None:
        id = f"cuda:{index}:{place}"
        handle: Any = None
        try:
            handle = self._ask(self.nvml.nvmlDeviceGetMigDeviceHandleByIndex, card, place)
            return None if handle is None else self._device(handle, index, id)
        except self.nvml.NVMLError as error:
            return self._lost(handle, index, id, error)

    def _lost(self, handle: Any, index: int, id: str, error: Exception) -> Device:
        """Return what is left of a card that failed: its UUID, if it tells that yet."""
        try:
            uuid = "" if handle is None else self.nvml.nvmlDeviceGetUUID(handle)
        except self.nvml.NVMLError:
            uuid = ""
        return _marked(id, index, _words(error), uuid)

    def _mig(self, handle: Any) -> bool:
        modes = self._ask(self.nvml.nvmlDeviceGetMigMode, handle)
        return modes is not None and modes[0] == self.nvml.NVML_DEVICE_MIG_ENABLE

    def _memory(self, handle: Any) -> tuple[int | None, int | None]:
        """Return (used, total); the first version of the call counts reserved memory as used."""
        memory = self._ask(self.nvml.nvmlDeviceGetMemoryInfo, handle, self.nvml.nvmlMemory_v2) or \
            self._ask(self.nvml.nvmlDeviceGetMemoryInfo, handle)
        return (None, None) if memory is None else (memory.used, memory.total)

    def _processes(self, handle: Any) -> tuple[DeviceProcess, ...] | None:
        running = self._ask(self.nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        if running is None:
            return None
        return tuple(DeviceProcess(pid=one.pid, name=process_name(one.pid),
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


def _marked(id: str, index: int, why: str, uuid: str = "") -> Device:
    """Return a card that is there and cannot be used; what it has not told is left empty."""
    return Device(id=id, kind="nvidia", index=index, name="NVIDIA card", uuid=uuid, unusable=why)


def _words(error: Exception) -> str:
    return f"NVML: {plain(str(error), 200)}"


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
        return Listing(tuple(NvmlReader(library).devices()))
    except library.NVMLError as error:
        has_driver = Path("/dev/nvidiactl").exists() or Path("/proc/driver/nvidia").exists()
        return Listing(problem=_words(error) if has_driver else "")


def states(devices: list[Device]) -> list[DeviceState]:
    """Return the state of each device; one that is lost gets a state with its problem.

    One that did not tell its UUID when it was listed is not asked: by its index it may be another.
    """
    library = nvml.load()
    found: list[DeviceState] = []
    for device in devices:
        if not device.uuid:
            found.append(DeviceState(device=device.id, at=time.time(), problem=device.unusable))
            continue
        try:
            library.nvmlInit()  # counted by the library: cheap after the first
            try:
                found.append(NvmlReader(library).state(device))
            finally:
                library.nvmlShutdown()
        except library.NVMLError as error:
            found.append(DeviceState(device=device.id, at=time.time(), problem=_words(error)))
    return found
