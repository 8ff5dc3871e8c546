"""NVML by nvidia-ml-py, or by the driver's own library where that package is not installed.

The harness also runs in a target's Python, beside torch and triton alone. What is here then answers
to the names that the package has, as far as the harness uses them (NVML API reference, r580).
"""

from __future__ import annotations

import ctypes
import importlib
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p, create_string_buffer
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
INSUFFICIENT_SIZE, FUNCTION_NOT_FOUND, LIBRARY_NOT_FOUND = 7, 13, 12
LETTERS = 96
NOT_AVAILABLE = (1 << 64) - 1


class NVMLError(Exception):
    """A call failed; subclasses are failures that mean that a device has no answer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class NVMLError_InvalidArgument(NVMLError):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_NoPermission(NVMLError):
    pass


class NVMLError_NotFound(NVMLError):
    pass


class NVMLError_FunctionNotFound(NVMLError):
    pass


KINDS: dict[int, type[NVMLError]] = {
    2: NVMLError_InvalidArgument, 3: NVMLError_NotSupported, 4: NVMLError_NoPermission,
    6: NVMLError_NotFound, FUNCTION_NOT_FOUND: NVMLError_FunctionNotFound}


class _Memory(ctypes.Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class _Memory2(ctypes.Structure):
    _fields_ = [("version", c_uint), ("total", c_ulonglong), ("reserved", c_ulonglong),
                ("free", c_ulonglong), ("used", c_ulonglong)]


class _Rates(ctypes.Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint)]


class _Running(ctypes.Structure):
    _fields_ = [("pid", c_uint), ("used", c_ulonglong), ("gpu_instance", c_uint),
                ("compute_instance", c_uint)]

    @property
    def usedGpuMemory(self) -> int | None:
        """The bytes, None where the driver does not say."""
        return None if self.used == NOT_AVAILABLE else int(self.used)


class Driver:
    """The driver's library, answering as the module `pynvml` does."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_COMPUTEMODE_PROHIBITED, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 2, 3
    NVML_DEVICE_MIG_ENABLE = 1
    nvmlMemory_v2 = ctypes.sizeof(_Memory2) | 2 << 24
    NVMLError = NVMLError
    NVMLError_InvalidArgument = NVMLError_InvalidArgument
    NVMLError_NotSupported = NVMLError_NotSupported
    NVMLError_NoPermission = NVMLError_NoPermission
    NVMLError_NotFound = NVMLError_NotFound
    NVMLError_FunctionNotFound = NVMLError_FunctionNotFound

    def __init__(self) -> None:
        self._library: Any = None

    def nvmlInit(self) -> None:
        if self._library is None:
            try:
                library = ctypes.CDLL(LIBRARY)
            except OSError as error:
                raise NVMLError(LIBRARY_NOT_FOUND, str(error)) from None
            library.nvmlErrorString.restype = c_char_p
            self._library = library  # whole: other threads ask about other cards meanwhile
        self._call("nvmlInit_v2")

    def nvmlShutdown(self) -> None:
        self._call("nvmlShutdown")

    def nvmlDeviceGetCount(self) -> int:
        return self._number("nvmlDeviceGetCount_v2")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self._handle("nvmlDeviceGetHandleByIndex_v2", c_uint(index))

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        return self._handle("nvmlDeviceGetHandleByUUID", c_char_p(uuid.encode()))

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: Any, index: int) -> Any:
        return self._handle("nvmlDeviceGetMigDeviceHandleByIndex", card, c_uint(index))

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, instance: Any) -> Any:
        return self._handle("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", instance)

    def nvmlDeviceGetName(self, handle: Any) -> str:
        return self._text("nvmlDeviceGetName", handle)

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return self._text("nvmlDeviceGetUUID", handle)

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> tuple[int, int]:
        return self._two("nvmlDeviceGetCudaComputeCapability", handle)

    def nvmlDeviceGetMigMode(self, handle: Any) -> tuple[int, int]:
        return self._two("nvmlDeviceGetMigMode", handle)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:
        return self._number("nvmlDeviceGetMaxMigDeviceCount", handle)

    def nvmlDeviceGetMinorNumber(self, handle: Any) -> int:
        return self._number("nvmlDeviceGetMinorNumber", handle)

    def nvmlDeviceGetComputeMode(self, handle: Any) -> int:
        return self._number("nvmlDeviceGetComputeMode", handle)

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        return self._number("nvmlDeviceGetPowerUsage", handle)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any) -> int:
        return self._number("nvmlDeviceGetEnforcedPowerLimit", handle)

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        return self._number("nvmlDeviceGetTemperature", handle, c_int(sensor))

    def nvmlDeviceGetClockInfo(self, handle: Any, clock: int) -> int:
        return self._number("nvmlDeviceGetClockInfo", handle, c_int(clock))

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any) -> int:
        return int(self._filled("nvmlDeviceGetCurrentClocksEventReasons", c_ulonglong(),
                                handle).value)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any) -> int:
        return int(self._filled("nvmlDeviceGetCurrentClocksThrottleReasons", c_ulonglong(),
                                handle).value)

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        return self._filled("nvmlDeviceGetUtilizationRates", _Rates(), handle)

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        if version is None:
            return self._filled("nvmlDeviceGetMemoryInfo", _Memory(), handle)
        return self._filled("nvmlDeviceGetMemoryInfo_v2", _Memory2(version=version), handle)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[_Running]:
        room = 64
        while True:
            found, count = (_Running * room)(), c_uint(room)
            try:
                self._call("nvmlDeviceGetComputeRunningProcesses_v3", handle, byref(count), found)
            except NVMLError as error:
                if error.code != INSUFFICIENT_SIZE or room > 1 << 16:
                    raise
                room *= 4
                continue
            return list(found[:count.value])

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise NVMLError_FunctionNotFound(FUNCTION_NOT_FOUND, f"no {name}") from None
        if code := function(*arguments):
            text = (self._library.nvmlErrorString(code) or b"").decode(errors="replace")
            raise KINDS.get(code, NVMLError)(code, text)

    def _filled(self, name: str, value: Any, *arguments: Any) -> Any:
        self._call(name, *arguments, byref(value))
        return value

    def _number(self, name: str, *arguments: Any) -> int:
        return int(self._filled(name, c_uint(), *arguments).value)

    def _handle(self, name: str, *arguments: Any) -> Any:
        return self._filled(name, c_void_p(), *arguments)

    def _two(self, name: str, handle: Any) -> tuple[int, int]:
        one, other = c_int(), c_int()
        self._call(name, handle, byref(one), byref(other))
        return one.value, other.value

    def _text(self, name: str, handle: Any) -> str:
        buffer = create_string_buffer(LETTERS)
        self._call(name, handle, buffer, c_uint(LETTERS))
        return buffer.value.decode(errors="replace")


_driver = Driver()


def load() -> Any:
    """Return nvidia-ml-py's module where it is installed, else what stands in for it."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return _driver
