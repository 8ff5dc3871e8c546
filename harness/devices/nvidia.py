"""NVIDIA cards through NVML. A machine without that library has none."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from harness.devices.call_timeout import BoundedCaller, CallTimeout
from harness.devices.device import Device, DeviceProcess, DeviceState, Listing
from harness.formats.text import plain, read_text

REASONS = {
    0x1: "idle", 0x2: "application-clocks", 0x4: "sw-power-cap", 0x8: "hw-slowdown",
    0x10: "sync-boost", 0x20: "sw-thermal", 0x40: "hw-thermal", 0x80: "hw-power-brake",
    0x100: "display-clock",
}
COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
NO_ANSWER = frozenset({2, 3, 4, 6, 13})
"""Codes by which a device, driver or library says that it does not support a call: invalid
argument, not supported, no permission, not found, function not found.
"""
MIG_PARENT = "MIG is on: use one of its instances"
CARD_S = 10.0
"""Time limit of listing one card; part of the limit of the whole list."""

_list_callers: dict[int, BoundedCaller[list[Device]]] = {}


class NvmlReader:
    """Reads devices and states through an initialised pynvml module."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml

    def devices(self) -> list[Device]:
        """Return all cards, with those that fail or hang as unusable ones.

        Raises NVMLError if the driver does not even count them.
        """
        indices = range(self.nvml.nvmlDeviceGetCount())
        readings = [_list_callers.setdefault(index, BoundedCaller()).start(
            partial(self._list_card, index), CARD_S) for index in indices]
        devices: list[Device] = []
        for index, reading in zip(indices, readings, strict=True):
            try:
                devices += reading()
            except CallTimeout as timeout:
                devices.append(_unusable(f"cuda:{index}", index, str(timeout)))
        return devices

    def _list_card(self, index: int) -> list[Device]:
        """Return a card and its MIG instances; those that fail carry the driver's message."""
        nvml, id = self.nvml, f"cuda:{index}"
        handle: Any = None
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            mig = self._has_mig(handle)
            card = self._device(handle, index, id, MIG_PARENT if mig else "")
            most_instances = self.ask(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) if mig else 0
        except nvml.NVMLError as error:
            return [self._lost(handle, index, id, error)]
        return [card, *(instance for number in range(most_instances or 0)
                        if (instance := self._instance(handle, index, number)))]

    def state(self, device: Device) -> DeviceState:
        """Read one device; unsupported fields are None or empty. Raises NVMLError if it is lost."""
        nvml, handle = self.nvml, self.nvml.nvmlDeviceGetHandleByUUID(device.uuid)
        used, total = self._memory(handle)
        ask = self.ask
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
            processes=self._processes(handle), throttle=self._reasons(handle),
            compute_mode=COMPUTE_MODES.get(mode, ""))

    def _device(self, handle: Any, index: int, id: str, unusable: str = "") -> Device:
        capability = self.ask(self.nvml.nvmlDeviceGetCudaComputeCapability, handle)
        mode = self.ask(self.nvml.nvmlDeviceGetComputeMode, handle)
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
        """Return a card's device file; empty for a MIG instance, whose files NVML does not list."""
        minor = self.ask(self.nvml.nvmlDeviceGetMinorNumber, handle)
        return () if minor is None or self._has_mig(handle) else (f"nvidia{minor}",)

    def _instance(self, card: Any, index: int, number: int) -> Device | None:
        id = f"cuda:{index}:{number}"
        handle: Any = None
        try:
            handle = self.ask(self.nvml.nvmlDeviceGetMigDeviceHandleByIndex, card, number)
            return None if handle is None else self._device(handle, index, id)
        except self.nvml.NVMLError as error:
            return self._lost(handle, index, id, error)

    def _lost(self, handle: Any, index: int, id: str, error: Exception) -> Device:
        """Return a card that failed, with its UUID if the driver still reports it."""
        try:
            uuid = "" if handle is None else self.nvml.nvmlDeviceGetUUID(handle)
        except self.nvml.NVMLError:
            uuid = ""
        return _unusable(id, index, _message(error), uuid)

    def _has_mig(self, handle: Any) -> bool:
        modes = self.ask(self.nvml.nvmlDeviceGetMigMode, handle)
        return modes is not None and modes[0] == self.nvml.NVML_DEVICE_MIG_ENABLE

    def _memory(self, handle: Any) -> tuple[int | None, int | None]:
        """Return (used, total) bytes; version 1 of the call counts reserved memory as used."""
        memory = self.ask(self.nvml.nvmlDeviceGetMemoryInfo, handle, self.nvml.nvmlMemory_v2) or \
            self.ask(self.nvml.nvmlDeviceGetMemoryInfo, handle)
        return (None, None) if memory is None else (memory.used, memory.total)

    def _processes(self, handle: Any) -> tuple[DeviceProcess, ...] | None:
        running = self.ask(self.nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        if running is None:
            return None
        return tuple(DeviceProcess(  # without a name in another process namespace
            pid=process.pid, name=plain(read_text(f"/proc/{process.pid}/comm").strip(), 40),
            memory_bytes=process.usedGpuMemory) for process in running)

    def _reasons(self, handle: Any) -> tuple[str, ...]:
        mask = self.ask(self.nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        if mask is None:
            mask = self.ask(self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
        return tuple(name for bit, name in REASONS.items() if mask & bit)

    def ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return a call's result, None if this device, driver or library does not support it."""
        try:
            return call(*arguments)
        except self.nvml.NVMLError as error:
            if error.value not in NO_ANSWER:
                raise
            return None


def _unusable(id: str, index: int, why: str, uuid: str = "") -> Device:
    """Return a card that exists but cannot be used; values it did not report are empty."""
    return Device(id=id, kind="nvidia", index=index, name="NVIDIA card", uuid=uuid, unusable=why)


def _message(error: Exception) -> str:
    return f"NVML: {plain(str(error), 200)}"


def load() -> Any:
    """Return the module `pynvml`; importing it loads no library."""
    return importlib.import_module("pynvml")


def listing() -> Listing:
    """Return all NVIDIA devices; a problem where nvidia-ml-py is missing or a driver fails."""
    try:
        library = load()
    except ImportError as error:
        return Listing(problem=_message(error))
    try:
        library.nvmlInit()
        return Listing(tuple(NvmlReader(library).devices()))
    except library.NVMLError as error:
        has_driver = Path("/dev/nvidiactl").exists() or Path("/proc/driver/nvidia").exists()
        return Listing(problem=_message(error) if has_driver else "")


def states(devices: list[Device]) -> list[DeviceState]:
    """Return the state of each device; that of a lost device carries its problem.

    A device that reported no UUID when it was listed is not read: by now, its index may belong to
    another card.
    """
    library = load()
    states: list[DeviceState] = []
    for device in devices:
        if not device.uuid:
            states.append(DeviceState(device=device.id, at=time.time(), problem=device.unusable))
            continue
        try:
            library.nvmlInit()  # reference-counted by the library: cheap after the first
            try:
                states.append(NvmlReader(library).state(device))
            finally:
                library.nvmlShutdown()
        except library.NVMLError as error:
            states.append(DeviceState(device=device.id, at=time.time(), problem=_message(error)))
    return states
