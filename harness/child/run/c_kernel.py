"""Loads a C kernel, a shared library, and times blocks of calls on slots of shared memory."""

from __future__ import annotations

import ctypes
import hashlib
from mmap import PAGESIZE
from typing import Any

from ..memory.host_memory import HostMemory
from .compiled_loop import Argument, CompiledLoop, order_of


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


class PreparedC:
    """The slots of one case: a row of arguments for each."""

    def __init__(self, kernel: Any, job: dict[str, Any], descriptors: list[int]) -> None:
        self.kernel = kernel
        self.memory = HostMemory.received(descriptors, job["memory"]["nbytes"])
        self.slots = list(range(job["slots"]))
        if job.get("is_fenced"):
            self.memory.fence(_zones(job))
        self.rows = kernel.rows(job["tensors"], [
            self.memory.address + slot * job["slot_bytes"] for slot in self.slots])

    def call(self, slot: int, touched: list[str]) -> list[dict[str, Any]]:
        """Call the kernel on a slot; return no tensors. Only Python kernels need `touched`."""
        self.run([slot])
        return []

    def run(self, order: list[int]) -> int:
        """Call the kernel on these slots; return the nanoseconds of all calls."""
        return int(self.kernel.loop.run(self.kernel.function, self.rows, order_of(order)))

    def close(self) -> None:
        """Forget the slots, which nothing may use any more; their memory is unmapped with them."""
        self.slots.clear()

    def store(self, slots: list[int]) -> None:
        """Do nothing: the kernel writes to the slots."""


def _zones(job: dict[str, Any]) -> list[int]:
    """Return the offsets of each slot's empty pages: one before all tensors, one after each."""
    ends = [tensor["offset"] + tensor["nbytes"] for tensor in job["tensors"]
            if tensor["role"] != "scalar"]
    return [slot * job["slot_bytes"] + -(-end // PAGESIZE) * PAGESIZE
            for slot in range(job["slots"]) for end in (0, *ends)]


def prepare(kernel: Any, job: dict[str, Any], descriptors: list[int]) -> PreparedC:
    """Return the slots of one case, after a call on each if the job says so."""
    case = PreparedC(kernel, job, descriptors)
    if job["call"]:
        case.run(case.slots)
    return case


def trim() -> None:
    """Do nothing: memory is freed with the slots."""


def warm(case: PreparedC, warm_ns: int) -> dict[str, Any]:
    """Call for at least `warm_ns`; return the nanoseconds of one call."""
    calls = spent_ns = 0
    while calls < 3 or spent_ns < warm_ns:
        spent_ns += case.run(case.slots)
        calls += len(case.slots)
    return {"call_ns": spent_ns / calls}


def block(case: PreparedC, job: dict[str, Any]) -> None:
    """Call once on the last slot, untimed; then time the calls on the slots in `order`."""
    case.run(case.slots[-1:])
    case.kernel.loop.block(case.kernel.function, case.rows, order_of(job["order"]),
                           stop=job["stop"])
