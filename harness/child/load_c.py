"""A C kernel: a shared library called through ctypes on page-aligned buffers."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import time
from typing import Any

CTYPES = {"float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_int64,
          "int32": ctypes.c_int32, "int8": ctypes.c_int8, "uint8": ctypes.c_uint8}
POISON = b"\xff"  # a quiet NaN in every float width, -1 or 255 in integers
GUARD_BYTES = 4096


class Buffer:
    """Page-aligned memory with a poisoned guard behind the payload."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.memory = mmap.mmap(-1, nbytes + GUARD_BYTES)
        self.memory[nbytes:] = POISON * GUARD_BYTES
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def read(self) -> bytes:
        return self.memory[: self.nbytes]

    def intact(self) -> bool:
        return self.memory[self.nbytes:] == POISON * GUARD_BYTES


class CKernel:
    def __init__(self, job: dict[str, Any]) -> None:
        with open(job["artifact"], "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        if digest != job["sha256"]:
            raise RuntimeError("the library is not the one that was built")
        library = ctypes.CDLL(job["artifact"])
        self.function = getattr(library, job["entry"])
        self.function.restype = None
        self.facts = {"sha256": digest}
        self.last = None  # a C kernel returns nothing; its outputs are among the buffers

    def buffers(self, tensors: list[dict[str, Any]]) -> list[Any]:
        """Return the call's arguments: scalars by value, tensors as filled or poisoned memory."""
        arguments: list[Any] = []
        for tensor in tensors:
            if tensor["role"] == "scalar":
                arguments.append(CTYPES[tensor["dtype"]](tensor["value"]))
                continue
            buffer = Buffer(tensor["nbytes"])
            if tensor["role"] == "output":
                buffer.memory[: buffer.nbytes] = POISON * buffer.nbytes
            else:
                with open(tensor["path"], "rb") as file:
                    buffer.memory[: buffer.nbytes] = file.read()
            arguments.append(buffer)
        return arguments

    def _native(self, arguments: list[Any]) -> list[Any]:
        return [ctypes.c_void_p(a.address) if isinstance(a, Buffer) else a for a in arguments]

    def call(self, arguments: list[Any]) -> None:
        self.function(*self._native(arguments))

    def synchronize(self) -> None:
        return None

    def write(self, arguments: list[Any], _: None,
              tensors: list[dict[str, Any]]) -> list[dict[str, Any]]:
        written = []
        for argument, tensor in zip(arguments, tensors, strict=True):
            if tensor["role"] == "scalar":
                continue
            if not argument.intact():
                raise RuntimeError(f"wrote past the end of {tensor['name']}")
            with open(tensor["after"], "wb") as file:
                file.write(argument.read())
            written.append({"name": tensor["name"], "path": tensor["after"],
                            "dtype": tensor["dtype"], "shape": tensor["shape"]})
        return written

    def time_block(self, arguments: list[Any], calls: int) -> int:
        """Return the nanoseconds of `calls` calls in a row, after one that is not timed."""
        function, native = self.function, self._native(arguments)
        function(*native)
        began = time.perf_counter_ns()
        for _ in range(calls):
            function(*native)
        return time.perf_counter_ns() - began
