"""Times a C kernel: blocks of consecutive calls, and calls between which the inputs change."""

from __future__ import annotations

import ctypes
from time import perf_counter_ns  # bound now: a kernel that replaces time.* later has no effect
from typing import Any


class PreparedC:
    """The buffers of one case."""

    def __init__(self, kernel: Any, tensors: list[dict[str, Any]]) -> None:
        self.function, self.tensors = kernel.function, tensors
        self.arguments = kernel.buffers(tensors)
        self.copies = [self.arguments]
        self.native = kernel.native(self.arguments)
        self.addresses = [getattr(argument, "address", 0) for argument in self.arguments]
        self.widths = [argument.nbytes // max(1, _elements(tensor)) if address else 0
                       for argument, tensor, address in
                       zip(self.arguments, tensors, self.addresses, strict=True)]
        self.decoy = ctypes.create_string_buffer(4096)

    def exchange(self, copy: int, moves: list[list[int]]) -> None:
        """Copy elements within inputs, in order; a move is [argument, to, from]."""
        for index, to, source in moves:
            width, address = self.widths[index], self.addresses[index]
            ctypes.memmove(address + to * width, address + source * width, width)

    def poison(self) -> None:
        for argument in self.arguments:
            if getattr(argument, "output", False):
                argument.poison()


def _elements(tensor: dict[str, Any]) -> int:
    count = 1
    for size in tensor["shape"]:
        count *= size
    return count


def prepare(kernel: Any, job: dict[str, Any]) -> PreparedC:
    """Return the buffers of one case after one call on them."""
    case = PreparedC(kernel, job["tensors"])
    case.function(*case.native)
    return case


def trim() -> None:
    """Do nothing: memory is freed with the buffers."""


def warm(case: PreparedC, warm_ns: int) -> dict[str, Any]:
    """Call for at least `warm_ns`; return the nanoseconds of one call."""
    began = perf_counter_ns()
    calls = 0
    while calls < 3 or perf_counter_ns() - began < warm_ns:
        case.function(*case.native)
        calls += 1
    return {"call_ns": (perf_counter_ns() - began) / calls}


def block(case: PreparedC, calls: int, mode: str) -> int:
    """Return the nanoseconds of `calls` consecutive calls, after one that is not timed.

    The outputs are poisoned in between, so they afterwards hold what the timed calls wrote.
    """
    function, native = case.function, case.native
    function(*native)
    case.poison()
    began = perf_counter_ns()
    for _ in range(calls):
        function(*native)
    return perf_counter_ns() - began


def probe(case: PreparedC, chain: list[list[int]], fresh: bool) -> int:
    """Return the nanoseconds of calls with a move before each: in the inputs, or in a decoy."""
    function, native, memmove = case.function, case.native, ctypes.memmove
    decoy = ctypes.addressof(case.decoy)
    steps = []
    for index, to, source in chain:
        width = case.widths[index]
        base = case.addresses[index] if fresh else decoy
        if not fresh:
            to, source = to % 256, source % 256
        steps.append((base + to * width, base + source * width, width))
    function(*native)
    case.poison()
    began = perf_counter_ns()
    for to, source, width in steps:
        memmove(to, source, width)
        function(*native)
    return perf_counter_ns() - began
