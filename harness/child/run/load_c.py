"""Loads a C kernel: a shared library, called on slots of shared memory."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

from .compiled_loop import Argument, CompiledLoop


class CKernel:
    """The entry function of a built library, and the loop that calls it."""

    on_gpu = False

    def __init__(self, job: dict[str, Any], loop: CompiledLoop) -> None:
        with open(job["artifact"], "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        if digest != job["sha256"]:
            raise RuntimeError("the library is not the one that was built")
        self.loop = loop
        self.function = getattr(ctypes.CDLL(job["artifact"]), job["entry"])
        self.facts = {"sha256": digest}

    def rows(self, tensors: list[dict[str, Any]], addresses: list[int]) -> Any:
        """Return the arguments of a call for each slot: scalars by value, tensors by address."""
        rows = (Argument * (len(tensors) * len(addresses)))()
        for number, address in enumerate(addresses):
            for index, tensor in enumerate(tensors, number * len(tensors)):
                if tensor["role"] == "scalar":
                    setattr(rows[index], tensor["dtype"], tensor["value"])
                else:
                    rows[index].p = address + tensor["offset"]
        return rows
