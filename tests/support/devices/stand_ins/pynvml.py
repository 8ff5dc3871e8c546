"""The driver's own library, with those names of `pynvml` that the harness uses (NVML, r580).

It stands in for the package on GPU machines that have nothing but torch, triton and pytest.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import Array, Structure, byref, c_char, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from functools import partial
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
FUNCTION_NOT_FOUND, LIBRARY_NOT_FOUND = 13, 12
MAX_PROCESSES = 4096
UNKNOWN_MEMORY = (1 << 64) - 1


class NVMLError(Exception):
    """A failed call; `value` is NVML's code."""

    def __init__(self, value: int, text: str) -> None:
        super().__init__(text)
        self.value = value


class _Memory(Structure):
    _fields_ = [("version", c_uint), ("total", c_ulonglong), ("reserved", c_ulonglong),
                ("free", c_ulonglong), ("used", c_ulonglong)]

    def __init__(self) -> None:
        super().__init__(version=Driver.nvmlMemory_v2)


class _Rates(Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint)]


class _Process(Structure):
    _fields_ = [("pid", c_uint), ("used", c_ulonglong), ("gpu_instance", c_uint),
                ("compute_instance", c_uint)]

    @property
    def usedGpuMemory(self) -> int | None:
        """Bytes; None where the driver does not report them."""
        return None if self.used == UNKNOWN_MEMORY else int(self.used)


_Text = c_char * 96
OUTPUTS: dict[str, tuple[Any, ...]] = {
    "nvmlInit_v2": (), "nvmlShutdown": (), "nvmlDeviceGetCount_v2": (c_uint,),
    "nvmlDeviceGetHandleByIndex_v2": (c_void_p,), "nvmlDeviceGetHandleByUUID": (c_void_p,),
    "nvmlDeviceGetMigDeviceHandleByIndex": (c_void_p,),
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": (c_void_p,),
    "nvmlDeviceGetName": (_Text,), "nvmlDeviceGetUUID": (_Text,),
    "nvmlDeviceGetCudaComputeCapability": (c_int, c_int), "nvmlDeviceGetMigMode": (c_uint, c_uint),
    "nvmlDeviceGetMaxMigDeviceCount": (c_uint,), "nvmlDeviceGetMinorNumber": (c_uint,),
    "nvmlDeviceGetComputeMode": (c_uint,), "nvmlDeviceGetPowerUsage": (c_uint,),
    "nvmlDeviceGetEnforcedPowerLimit": (c_uint,), "nvmlDeviceGetTemperature": (c_uint,),
    "nvmlDeviceGetClockInfo": (c_uint,), "nvmlDeviceGetUtilizationRates": (_Rates,),
    "nvmlDeviceGetCurrentClocksEventReasons": (c_ulonglong,),
    "nvmlDeviceGetCurrentClocksThrottleReasons": (c_ulonglong,),
    "nvmlDeviceGetMemoryInfo_v2": (_Memory,),
}
"""The library's functions, and the types of the output arguments that follow the inputs of each."""


class Driver:
    """The driver's library, with the names of `pynvml`."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_COMPUTEMODE_PROHIBITED, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 2, 3
    NVML_DEVICE_MIG_ENABLE = 1
    nvmlMemory_v2 = ctypes.sizeof(_Memory) | 2 << 24
    NVMLError = NVMLError

    def __init__(self) -> None:
        self._library: Any = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        symbol = name if name in OUTPUTS else f"{name}_v2"
        if symbol not in OUTPUTS:
            raise AttributeError(name)
        return partial(self._read, symbol)

    def nvmlInit(self) -> None:
        if self._library is None:
            try:
                library = ctypes.CDLL(LIBRARY)
            except OSError as error:
                raise NVMLError(LIBRARY_NOT_FOUND, str(error)) from None
            library.nvmlErrorString.restype = c_char_p
            self._library = library  # set last: other threads may be reading other cards
        self._read("nvmlInit_v2")

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        return self._read("nvmlDeviceGetMemoryInfo_v2", handle)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[_Process]:
        count, processes = c_uint(MAX_PROCESSES), (_Process * MAX_PROCESSES)()
        self._call("nvmlDeviceGetComputeRunningProcesses_v3", handle, byref(count), processes)
        return list(processes[:count.value])

    def _read(self, symbol: str, *inputs: Any) -> Any:
        """Return what a function writes: a number, a text, a structure or a tuple of them."""
        outputs = [output() for output in OUTPUTS[symbol]]
        lengths = [c_uint(len(output)) for output in outputs if isinstance(output, Array)]
        self._call(symbol, *(value.encode() if isinstance(value, str) else value
                             for value in inputs), *map(byref, outputs), *lengths)
        values = tuple(_python_value(output) for output in outputs)
        return values[0] if len(values) == 1 else values

    def _call(self, symbol: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, symbol)
        except AttributeError:
            raise NVMLError(FUNCTION_NOT_FOUND, f"no {symbol}") from None
        if code := function(*arguments):
            text = (self._library.nvmlErrorString(code) or b"").decode(errors="replace")
            raise NVMLError(code, text)


def _python_value(output: Any) -> Any:
    if isinstance(output, Array):
        return output.value.decode(errors="replace")
    return output if isinstance(output, (Structure, c_void_p)) else output.value


_driver = Driver()


def __getattr__(name: str) -> Any:
    return getattr(_driver, name)
