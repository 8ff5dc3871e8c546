"""Times a C kernel: a block of calls, each on a slot of its own in shared memory."""

from __future__ import annotations

from time import perf_counter_ns  # bound now: a kernel that replaces time.* later has no effect
from typing import Any

from ..memory.host_memory import HostMemory


class PreparedC:
    """The slots of one case: the arguments of a call for each."""

    def __init__(self, kernel: Any, job: dict[str, Any], descriptors: list[int]) -> None:
        self.function = kernel.function
        self.memory = HostMemory.received(descriptors[0], job["memory"]["nbytes"])
        self.slots = [
            kernel.arguments(job["tensors"], self.memory.address + slot * job["slot_bytes"])
            for slot in range(job["slots"])]

    def call(self, slot: int, touched: list[str]) -> list[dict[str, Any]]:
        """Call once; a C kernel returns nothing, and its caller's `touched` inputs are memory."""
        self.function(*self.slots[slot])
        return []

    def lead(self, order: list[int]) -> None:
        """Get ready for a block of these calls, and call once."""
        self.armed = [self.slots[slot] for slot in order]
        self.function(*self.slots[-1])

    def close(self) -> None:
        """Unmap the slots: nothing may use them any more."""
        self.slots.clear()

    def store(self, slots: list[int]) -> None:
        """Do nothing: the kernel writes to the slots."""


def prepare(kernel: Any, job: dict[str, Any], descriptors: list[int]) -> PreparedC:
    """Return the slots of one case, after a call on each if the job says so."""
    case = PreparedC(kernel, job, descriptors)
    for arguments in case.slots if job["call"] else ():
        case.function(*arguments)
    return case


def trim() -> None:
    """Do nothing: memory is freed with the slots."""


def warm(case: PreparedC, warm_ns: int) -> dict[str, Any]:
    """Call for at least `warm_ns`; return the nanoseconds of one call."""
    began = perf_counter_ns()
    calls = 0
    while calls < 3 or perf_counter_ns() - began < warm_ns:
        case.function(*case.slots[calls % len(case.slots)])
        calls += 1
    return {"call_ns": (perf_counter_ns() - began) / calls}


def block(case: PreparedC, job: dict[str, Any]) -> int:
    """Return the nanoseconds of the calls that the case is armed for."""
    function, calls = case.function, case.armed
    began = perf_counter_ns()
    for arguments in calls:
        function(*arguments)
    return perf_counter_ns() - began
