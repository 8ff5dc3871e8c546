"""Loads and calls a C kernel: a shared library, through ctypes, on page-aligned buffers."""

from __future__ import annotations

import ctypes
import hashlib
import math
import mmap
from typing import Any

CTYPES = {"float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_int64,
          "int32": ctypes.c_int32, "int8": ctypes.c_int8, "uint8": ctypes.c_uint8}
POISON = b"\xff"  # a quiet NaN in every float width, -1 or 255 in integers
GUARD_BYTES = 4096


class GuardedMemory:
    """Page-aligned memory with poisoned guards before and behind the payload."""

    def __init__(self, tensor: dict[str, Any]) -> None:
        self.nbytes, self.role, self.path = tensor["nbytes"], tensor["role"], tensor["path"]
        self.output = self.role == "output"
        self.width = self.nbytes // max(1, math.prod(tensor["shape"]))
        self.memory = mmap.mmap(-1, self.nbytes + 2 * GUARD_BYTES)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) + GUARD_BYTES
        ctypes.memset(self.address - GUARD_BYTES, POISON[0], len(self.memory))

    def poison(self) -> None:
        ctypes.memset(self.address, POISON[0], self.nbytes)

    def fill(self) -> None:
        """Read the contents from the file they were written to."""
        with open(self.path, "rb") as file:
            self._put(file.read())

    def _put(self, data: bytes) -> None:
        if len(data) != self.nbytes:
            raise RuntimeError(f"{len(data)} bytes of input, expected {self.nbytes}")
        self.memory[GUARD_BYTES: GUARD_BYTES + self.nbytes] = data

    def move(self, to: list[int], source: list[int]) -> None:
        """Copy elements over others in place, all at once."""
        width, old = self.width, self.read()
        new = bytearray(old)
        for there, here in zip(to, source, strict=True):
            new[there * width:(there + 1) * width] = old[here * width:(here + 1) * width]
        self._put(bytes(new))

    def reverse(self) -> None:
        """Reverse the order of the elements, which gives new contents of the same distribution."""
        old, width = self.read()[::-1], self.width
        new = bytearray(len(old))
        for byte in range(width):
            new[byte::width] = old[width - 1 - byte::width]
        self._put(bytes(new))

    def read(self) -> bytes:
        return self.memory[GUARD_BYTES: GUARD_BYTES + self.nbytes]

    def overrun(self) -> str:
        """Return where a guard was overwritten, empty if both are intact."""
        if self.memory[:GUARD_BYTES] != POISON * GUARD_BYTES:
            return "before the beginning"
        behind = self.memory[GUARD_BYTES + self.nbytes:]
        return "" if behind == POISON * GUARD_BYTES else "past the end"


class CKernel:
    """The entry function of a built library, with the operations that a runner needs."""

    def __init__(self, job: dict[str, Any]) -> None:
        with open(job["artifact"], "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        if digest != job["sha256"]:
            raise RuntimeError("the library is not the one that was built")
        library = ctypes.CDLL(job["artifact"])
        self.function = getattr(library, job["entry"])
        self.function.restype = None
        self.facts = {"sha256": digest}
        self.on_gpu = False
        self.last = None  # a C kernel returns nothing; its outputs are among the buffers

    def buffers(self, tensors: list[dict[str, Any]]) -> list[Any]:
        """Return the call's arguments: scalars by value, tensors as filled or poisoned memory."""
        arguments: list[Any] = []
        for tensor in tensors:
            if tensor["role"] == "scalar":
                arguments.append(CTYPES[tensor["dtype"]](tensor["value"]))
                continue
            buffer = GuardedMemory(tensor)
            if not buffer.output:
                buffer.fill()
            arguments.append(buffer)
        return arguments

    def native(self, arguments: list[Any]) -> list[Any]:
        return [
            ctypes.c_void_p(a.address) if isinstance(a, GuardedMemory) else a for a in arguments
        ]

    def call(self, arguments: list[Any]) -> None:
        self.function(*self.native(arguments))

    def synchronize(self) -> None:
        return None

    def renew(self, arguments: list[Any]) -> None:
        """Prepare the buffers for another call: poison outputs, reload in-place arguments."""
        for argument in arguments:
            if isinstance(argument, GuardedMemory) and argument.output:
                argument.poison()
            elif isinstance(argument, GuardedMemory) and argument.role == "inout":
                argument.fill()

    def move(self, arguments: list[Any], names: list[str], moves: dict[str, Any]) -> None:
        for argument, name in zip(arguments, names, strict=True):
            if isinstance(argument, GuardedMemory) and argument.role == "input" and name in moves:
                argument.move(*moves[name])

    def reverse(self, arguments: list[Any]) -> None:
        for argument in arguments:
            if isinstance(argument, GuardedMemory) and not argument.output:
                argument.reverse()

    def write(self, arguments: list[Any], _: None, tensors: list[dict[str, Any]],
              outputs_only: bool = False) -> list[dict[str, Any]]:
        written = []
        for argument, tensor in zip(arguments, tensors, strict=True):
            if tensor["role"] == "scalar" or (outputs_only and tensor["role"] == "input"):
                continue
            if where := argument.overrun():
                raise RuntimeError(f"wrote {where} of {tensor['name']}")
            with open(tensor["after"], "wb") as file:
                file.write(argument.read())
            written.append({"name": tensor["name"], "path": tensor["after"],
                            "dtype": tensor["dtype"], "shape": tensor["shape"]})
        return written
