"""A task's reference: a Python or C function or, where it has none, the baseline's entry."""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import keyword
import os
import sys
from typing import Any


class Reference:
    """The task's reference function, called with the inputs by name; in float64 if the job asks."""

    runs_on_host = True

    def __init__(self, arrays: Any, job: dict[str, Any]) -> None:
        self.arrays, self.wide, self.library = arrays, job["float64"], job["library"]
        if self.library != "numpy" and arrays.device == "cpu":
            from ..interpreter import cpu_as_cuda

            cpu_as_cuda.use_always()
        path = job["reference"]
        sys.path.insert(0, os.path.dirname(path))
        spec = importlib.util.spec_from_file_location("kopt_reference", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"cannot load {path}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.function = getattr(module, job["function"])
        accepted = inspect.signature(self.function).parameters
        self.accepted = None if any(each.kind is each.VAR_KEYWORD for each in accepted.values()) \
            else accepted
        """The reference function's parameters; None if it has a `**` parameter."""

    def values(self, tensors: list[dict[str, Any]], drawn: dict[str, Any]) -> dict[str, Any]:
        """Return by name all arguments that are not outputs."""
        return {tensor["name"]: self._constant(tensor) if tensor["role"] == "scalar" else
                self.arrays.widen(drawn[tensor["name"]], tensor["shape"], wide=self.wide)
                for tensor in tensors if tensor["role"] != "output"}

    def _constant(self, tensor: dict[str, Any]) -> Any:
        if self.library == "numpy":
            return tensor["value"]
        from ..run.load_python import constant

        return constant(tensor, self.arrays.device)

    def results(self, tensors: list[dict[str, Any]], values: dict[str, Any]) -> list[Any]:
        """Return the expected outputs."""
        result = self.function(**self._arguments(values))
        return list(result) if isinstance(result, tuple) else [result]

    def _arguments(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by parameter: `name_` if the argument's name is a Python keyword.

        Arguments without a parameter are left out. Raises TypeError if a parameter has no argument.
        """
        if self.accepted is None:
            return values
        named = {f"{name}_" if keyword.iskeyword(name) else name: value
                 for name, value in values.items()}
        missing = [name for name, each in self.accepted.items() if name not in named
                   and each.default is each.empty and each.kind is not each.VAR_POSITIONAL]
        if missing:
            raise TypeError(f"its parameter {', '.join(missing)} is not an input of the task, "
                            f"whose inputs are {', '.join(named)}")
        return {name: value for name, value in named.items() if name in self.accepted}


class BaselineReference:
    """Calls the entry of the baseline's source as a runner does, on the declared dtypes.

    Triton's interpreter gets bfloat16 as float32, as in a runner.
    """

    runs_on_host = False

    def __init__(self, arrays: Any, kernel: dict[str, Any]) -> None:
        from ..run.load_device_code import DeviceKernel
        from ..run.load_python import PythonKernel

        self.arrays, self.device, self.interpret = arrays, arrays.device, kernel["interpret"]
        if self.interpret:
            from ..interpreter import interpret

            interpret.install()
        kind = DeviceKernel if kernel["language"] in ("cuda", "hip") else PythonKernel
        self.kernel = kind({**kernel, "device": self.device}, None)

    def values(self, tensors: list[dict[str, Any]], drawn: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by name in call order; outputs are zeros."""
        from ..run.load_python import constant

        torch, values = self.arrays.torch, {}
        for tensor in tensors:
            name, dtype = tensor["name"], tensor["dtype"]
            if tensor["role"] == "scalar":
                values[name] = constant(tensor, self.device)
                continue
            value = torch.zeros(tensor["shape"], dtype=getattr(torch, dtype), device=self.device) \
                if tensor["role"] == "output" else \
                self.arrays.widen(drawn[name], tensor["shape"], wide=False)
            values[name] = value.float() if self.interpret and dtype == "bfloat16" else value
        return values

    def results(self, tensors: list[dict[str, Any]], values: dict[str, Any]) -> list[Any]:
        """Call the entry; return its output and in-place tensors, then what it returned."""
        from ..run.load_python import Call

        call = Call(self.kernel.packed(tensors, list(values.values())), [])
        self.kernel.call(call)
        returned = call.returned
        written = [values[tensor["name"]] for tensor in tensors
                   if tensor["role"] in ("output", "inout")]
        if not self.kernel.returns:
            return written
        return [*written, *(returned if isinstance(returned, tuple | list) else (returned,))]


C_TYPES = {"float32": ctypes.c_float, "float64": ctypes.c_double, "int64": ctypes.c_int64,
           "int32": ctypes.c_int32, "int16": ctypes.c_int16, "int8": ctypes.c_int8,
           "uint8": ctypes.c_uint8}


class LibraryReference:
    """Calls a function of a C library with the task's arguments in call order, on the CPU.

    It is the baseline's entry, which takes the declared dtypes, or the task's own reference, which
    takes every float as a double.
    """

    runs_on_host = False

    def __init__(self, arrays: Any, library: str, function: str, *, wide: bool) -> None:
        self.arrays, self.wide = arrays, wide
        self.function = getattr(ctypes.CDLL(library), function)
        self.function.restype = None

    def values(self, tensors: list[dict[str, Any]], drawn: dict[str, Any]) -> dict[str, Any]:
        """Return by name all arguments that are not outputs."""
        return {tensor["name"]: tensor["value"] if tensor["role"] == "scalar" else
                self.arrays.widen(drawn[tensor["name"]], tensor["shape"], wide=self.wide)
                for tensor in tensors if tensor["role"] != "output"}

    def results(self, tensors: list[dict[str, Any]], values: dict[str, Any]) -> list[Any]:
        """Call the function; return its output and in-place arrays. Outputs are zeros before."""
        given: list[Any] = []
        written: list[Any] = []
        for tensor in tensors:
            name, dtype = tensor["name"], self._dtype(tensor["dtype"])
            if tensor["role"] == "scalar":
                given.append(C_TYPES[dtype](values[name]))
                continue
            array = self.arrays.host_zeros(tensor["shape"], dtype) \
                if tensor["role"] == "output" else self.arrays.on_host_as(values[name], dtype)
            given.append(ctypes.c_void_p(self.arrays.address(array)))
            written += [array] if tensor["role"] in ("output", "inout") else []
            values[name] = array  # it stays in memory until the call is over
        self.function(*given)
        return [self.arrays.from_host(array) for array in written]

    def _dtype(self, dtype: str) -> str:
        return "float64" if self.wide and "float" in dtype else dtype


def open_reference(arrays: Any, job: dict[str, Any]) -> Reference | BaselineReference | \
        LibraryReference:
    """Return the task's reference, or the baseline that serves as one."""
    baseline = job["baseline"]
    if job["c_reference"]:
        return LibraryReference(arrays, job["c_reference"], job["function"], wide=True)
    if not baseline:
        return Reference(arrays, job)
    return LibraryReference(arrays, baseline["artifact"], baseline["entry"], wide=False) \
        if baseline["language"] == "c" else BaselineReference(arrays, baseline)
