"""Loads a C kernel: a shared library, called through ctypes on slots of shared memory."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

CTYPES = {"float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_int64,
          "int32": ctypes.c_int32, "int8": ctypes.c_int8, "uint8": ctypes.c_uint8}


class CKernel:
    """The entry function of a built library."""

    on_gpu = False

    def __init__(self, job: dict[str, Any]) -> None:
        with open(job["artifact"], "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        if digest != job["sha256"]:
            raise RuntimeError("the library is not the one that was built")
        library = ctypes.CDLL(job["artifact"])
        self.function = getattr(library, job["entry"])
        self.function.restype = None
        self.facts = {"sha256": digest}

    def arguments(self, tensors: list[dict[str, Any]], address: int) -> list[Any]:
        """Return a call's arguments: scalars by value, tensors in the slot at `address`."""
        return [CTYPES[tensor["dtype"]](tensor["value"]) if tensor["role"] == "scalar"
                else ctypes.c_void_p(address + tensor["offset"]) for tensor in tensors]
