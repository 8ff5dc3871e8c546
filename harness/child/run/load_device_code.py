"""Loads a compiled CUDA or HIP kernel, and calls it with the addresses of torch's tensors.

Work goes to torch's current stream, so that events and graphs include it. A host entry gets that
stream as one more argument, after those that the task declares; C's calling convention lets an
entry without this parameter ignore it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from .load_python import Call, PythonKernel, make_context

SCALARS: dict[str, type[Any]] = {
    "float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_int64,
    "int32": ctypes.c_int32, "int16": ctypes.c_int16, "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8}
CHECK = "kopt_last_error"
SHARED_WITHOUT_REQUEST = 48 << 10
MOST_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""


class HostFunction:
    """A function of a shared library, which launches kernels itself."""

    def __init__(self, path: str, entry: str) -> None:
        library = ctypes.CDLL(path)
        self._function = getattr(library, entry)
        self._function.restype = None
        self._error = getattr(library, CHECK)
        self._error.restype = ctypes.c_char_p

    def __call__(self, *values: Any) -> None:
        self._function(*values, ctypes.c_void_p(_stream()))

    def error(self) -> str:
        """Return what failed since the last check, "" if nothing did."""
        return (self._error() or b"").decode(errors="replace")


class GlobalFunction:
    """A `__global__` function of a loaded module, launched through the driver."""

    def __init__(self, code: bytes, symbol: str, most_shared: int = 0) -> None:
        self._prefix, driver = ("hip", _loaded_hip()) if torch.version.hip else \
            ("cu", ctypes.CDLL("libcuda.so.1"))
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._driver = driver
        self._check("ModuleLoadData", ctypes.byref(module), code)
        self._check("ModuleGetFunction", ctypes.byref(self._function), module, symbol.encode())
        if most_shared > SHARED_WITHOUT_REQUEST and self._prefix == "cu":
            self._check("FuncSetAttribute", self._function, MOST_DYNAMIC_SHARED, most_shared)
        self._launch = getattr(driver, "hipModuleLaunchKernel" if torch.version.hip
                               else "cuLaunchKernel")
        self._launch.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]

    def __call__(self, sizes: Sequence[int], addresses: Any, _: Any) -> None:
        if status := self._launch(self._function, *sizes, _stream(), addresses, None):
            raise RuntimeError(f"the launch failed: {self._name(status)}")

    def error(self) -> str:
        return ""

    def _check(self, name: str, *args: Any) -> None:
        if status := getattr(self._driver, self._prefix + name)(*args):
            raise RuntimeError(f"{self._prefix}{name}: {self._name(status)}")

    def _name(self, status: int) -> str:
        if self._prefix == "hip":
            name = self._driver.hipGetErrorName
            name.restype = ctypes.c_char_p
            return str((name(status) or b"").decode())
        text = ctypes.c_char_p()
        self._driver.cuGetErrorName(status, ctypes.byref(text))
        return (text.value or str(status).encode()).decode()


class DeviceKernel(PythonKernel):
    """The entry of a built CUDA or HIP source; its tensors lie in slots as a Python kernel's do."""

    def opened(self, job: dict[str, Any]) -> tuple[Any, Any]:
        make_context(self.device)
        self._launches = job["launches"]
        if not self._launches:
            return None, HostFunction(job["artifact"], job["entry"])
        with open(job["artifact"], "rb") as file:
            code = file.read()
        return None, GlobalFunction(code, job["entry"],
                                    max(sizes[-1] for sizes in self._launches.values()))

    def arguments(self, tensors: list[dict[str, Any]], slot: Any,
                  weights: Call | None = None) -> Call:
        return self.on_buffers_of(super().arguments(tensors, slot, weights), tensors)

    def on_buffers_of(self, call: Call, tensors: list[dict[str, Any]]) -> Call:
        """Return a call of this kernel on the buffers of another call."""
        return Call(self.packed(tensors, [None if buffer is None else buffer.tensor
                                          for buffer in call.buffers]), call.buffers)

    def packed(self, tensors: list[dict[str, Any]], values: list[Any]) -> list[Any]:
        values = [SCALARS[tensor["dtype"]](tensor["value"]) if tensor["role"] == "scalar"
                  else ctypes.c_void_p(value.data_ptr())
                  for tensor, value in zip(tensors, values, strict=True)]
        if not self._launches:
            return values
        addresses = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        return [self._launches[tensors[0]["config_class"]], addresses, values]

    def call(self, call: Call) -> None:
        super().call(call)
        self.check()

    def check(self) -> None:
        """Raise RuntimeError if a launch since the last check has failed."""
        if failed := self.function.error():
            raise RuntimeError(f"a launch failed: {failed}")


def _stream() -> int:
    """Return the handle of torch's current stream on the first card."""
    return int(torch._C._cuda_getCurrentRawStream(0))


def driver_wait() -> Any:
    """Return the driver's function that waits until the GPU has done this process's work."""
    return _loaded_hip().hipDeviceSynchronize if torch.version.hip else \
        ctypes.CDLL("libcuda.so.1").cuCtxSynchronize


def _loaded_hip() -> ctypes.CDLL:
    """Return the HIP library that torch has loaded, from whichever folder."""
    name = "libamdhip64.so"
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if name in line}
    return ctypes.CDLL(min(paths, default=name))
