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
    """Page-aligned memory with poisoned guards before and behind the payload."""

    def __init__(self, nbytes: int, *, output: bool) -> None:
        self.nbytes, self.output = nbytes, output
        self.memory = mmap.mmap(-1, nbytes + 2 * GUARD_BYTES)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) + GUARD_BYTES
        ctypes.memset(self.address - GUARD_BYTES, POISON[0], len(self.memory))

    def poison(self) -> None:
        ctypes.memset(self.address, POISON[0], self.nbytes)

    def fill(self, data: bytes) -> None:
        if len(data) != self.nbytes:
            raise RuntimeError(f"{len(data)} bytes of input, expected {self.nbytes}")
        self.memory[GUARD_BYTES: GUARD_BYTES + self.nbytes] = data

    def read(self) -> bytes:
        return self.memory[GUARD_BYTES: GUARD_BYTES + self.nbytes]

    def overrun(self) -> str:
        """Say at which end something was written outside of the payload, if it was."""
        if self.memory[:GUARD_BYTES] != POISON * GUARD_BYTES:
            return "before the beginning"
        behind = self.memory[GUARD_BYTES + self.nbytes:]
        return "" if behind == POISON * GUARD_BYTES else "past the end"


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
            buffer = Buffer(tensor["nbytes"], output=tensor["role"] == "output")
            if not buffer.output:
                with open(tensor["path"], "rb") as file:
                    buffer.fill(file.read())
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
            if where := argument.overrun():
                raise RuntimeError(f"wrote {where} of {tensor['name']}")
            with open(tensor["after"], "wb") as file:
                file.write(argument.read())
            written.append({"name": tensor["name"], "path": tensor["after"],
                            "dtype": tensor["dtype"], "shape": tensor["shape"]})
        return written

    def time_block(self, arguments: list[Any], calls: int) -> int:
        """Return the nanoseconds of `calls` calls in a row, after one that is not timed.

        What is in the outputs afterwards, the timed calls wrote.
        """
        function, native = self.function, self._native(arguments)
        function(*native)
        for argument in arguments:
            if isinstance(argument, Buffer) and argument.output:
                argument.poison()
        began = time.perf_counter_ns()
        for _ in range(calls):
            function(*native)
        return time.perf_counter_ns() - began
