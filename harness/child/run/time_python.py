"""Times a Python or Triton kernel.

A block has one of three modes. `graph` replays a CUDA graph of several calls, so that Python's
speed does not limit short kernels. `launch` launches call by call between two GPU events. `wall`
does the same by the host's clock, launch overhead included. The compiled loop makes the calls.
In a verdict every call of a block has a slot of its own in shared memory; in a screening, calls
take turns on a few copies of the buffers.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import partial
from time import perf_counter_ns  # bound now: a kernel that replaces time.* later has no effect
from typing import Any

import torch

from ..memory.device_memory import DeviceMemory
from ..memory.host_memory import HostMemory
from .returned_memory import memories_of

COPYING = ("copy_", "detach", "view", "view.dtype", "select.int", "slice.Tensor", "as_strided")
"""The operations of torch by which `store` copies returned values, after the clock has stopped."""
_kernels_of = torch._C._dispatch_dump
COUNTS_OF_MODES = [getattr(torch._C, name) for name in (
    "_len_torch_function_stack", "_len_torch_dispatch_stack") if hasattr(torch._C, name)]
KERNELS = {name: _kernels_of(f"aten::{name}") for name in COPYING}


class PreparedPython:
    """The calls of one case on several copies of its buffers, and graphs of such calls.

    The copies are slots of shared memory, or those of another side in this process. Where a GPU
    cannot share its memory, slots of host memory are shared, and `fetch` and `store` copy them.
    """

    def __init__(self, kernel: Any, job: dict[str, Any], descriptors: list[int]) -> None:
        self.kernel, self.on_gpu = kernel, kernel.on_gpu
        self.graphs: dict[int, Any] = {}
        if (other := job.get("copies_of")) is not None:
            self.slots, self.shared = other.slots, other.shared
            self.tensors, self.regions = other.tensors, other.regions
            self.copies: Any = [kernel.on_buffers_of(call, self.tensors) for call in other.copies]
            self.memory: Any = other.memory
            return
        kind, size = job["memory"]["kind"], job["slots"] * job["slot_bytes"]
        memory_class: type[Any] = DeviceMemory if kind == "device" else HostMemory
        self.memory = memory_class.received(descriptors, job["memory"]["nbytes"])
        self.shared = self.memory.tensor()[:size].view(job["slots"], job["slot_bytes"])
        self.slots = self.shared.to(kernel.device, copy=True) \
            if self.on_gpu and kind == "host" else self.shared
        self.tensors, self.regions = job["tensors"], job["returned"]
        self.copies = [kernel.arguments(self.tensors, self.slots[0])]
        self.copies += [kernel.arguments(self.tensors, slot,
                                         self.copies[0] if job["one_weight"] else None)
                        for slot in self.slots[1:]]

    def call(self, slot: int, touched: list[str]) -> list[dict[str, Any]]:
        """Call once and describe the returned tensors; `touched` weights were changed outside."""
        call = self.copies[slot]
        self.fetch(slot, slot + 1)
        for buffer in call.buffers:
            if buffer is not None and buffer.description["name"] in touched:
                buffer.touch()
        self.kernel.call(call)
        self.synchronize()
        self.store([slot])
        described: list[dict[str, Any]] = self.kernel.described(call)
        return described

    def fetch(self, first: int, end: int) -> None:
        """Copy the contents of slots to a GPU that shares no memory."""
        if self.slots is not self.shared:
            self.slots[first:end].copy_(self.shared[first:end])
            self.synchronize()

    def store(self, slots: list[int]) -> None:
        """Copy returned values into their slots; copy these from a GPU that shares no memory.

        Raises TypeError or ValueError for values that may not be copied.
        """
        if self.regions and modes():
            raise TypeError("a mode of torch is active, which may compute what was returned")
        if self.regions and (name := overridden()):
            raise TypeError(f"torch's {name} is overridden, which may compute what was returned")
        for slot in slots if self.regions else ():
            values = self.kernel.returned(self.copies[slot])
            if len(values) != len(self.regions):
                raise ValueError(f"{len(values)} outputs, expected {len(self.regions)}")
            memories = memories_of(values, self.copies[slot].arguments)
            for value, region, memory in zip(values, self.regions, memories, strict=True):
                if list(value.shape) != region["shape"]:
                    raise ValueError(f"returned shape {list(value.shape)}, the reference "
                                     f"{region['shape']}")
                if memory != region.get("memory", memory):
                    raise ValueError(f"returned {memory or 'new memory'} in some calls only")
                size = value.numel() * value.element_size()
                if size > region["nbytes"]:
                    raise ValueError(f"returned {value.dtype}")
                raw = self.slots[slot, region["offset"]:region["offset"] + size]
                raw.view(value.dtype).view(value.shape).copy_(value)
        self.synchronize()
        if self.slots is not self.shared:
            for slot in slots:
                self.shared[slot].copy_(self.slots[slot])

    def close(self) -> None:
        """Unmap the slots: nothing may use them any more."""
        self.synchronize()
        self.graphs.clear()
        self.copies = self.slots = self.shared = self.memory = None

    def run(self, calls: int) -> None:
        """Launch call by call, each on the next copy."""
        self.run_on(number % len(self.copies) for number in range(calls))

    def run_on(self, order: Iterable[int]) -> None:
        """Launch call by call, on the copies in `order`."""
        call, copies = self.kernel.call, self.copies
        for number in order:
            call(copies[number])

    def synchronize(self) -> None:
        self.kernel.synchronize()


def modes() -> int:
    """Return the number of active modes that see every operation of torch."""
    return sum(count() for count in COUNTS_OF_MODES)


def overridden() -> str:
    """Return the first operation of `COPYING` whose kernels have changed, "" if there is none."""
    return next((name for name, kernels in KERNELS.items()
                 if _kernels_of(f"aten::{name}") != kernels), "")


def prepare(kernel: Any, job: dict[str, Any], descriptors: list[int]) -> PreparedPython:
    """Return the buffers of one case, after one call on each copy if the job says so.

    The first call also compiles the kernel.
    """
    case = PreparedPython(kernel, job, descriptors)
    if job["call"]:
        case.run(len(case.copies))
        case.synchronize()
    return case


def trim() -> None:
    """Return unused GPU memory to the driver."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def warm(case: PreparedPython, warm_ns: int) -> dict[str, Any]:
    """Call for about `warm_ns`; return the nanoseconds of one call, and of its launch.

    Launches are timed on two calls: more could fill the GPU's queue, and the host would wait.
    """
    _, call_ns = _timed(case, 3)
    _, call_ns = _timed(case, max(3, min(2000, int(warm_ns / max(call_ns, 1.0)))))
    launch_ns, _ = _timed(case, 2)
    return {"call_ns": call_ns, "launch_ns": launch_ns}


def _timed(case: PreparedPython, calls: int) -> tuple[float, float]:
    """Return the nanoseconds per call until all were launched, and until all had ended."""
    began = perf_counter_ns()
    case.run(calls)
    launched = perf_counter_ns()
    case.synchronize()
    return (launched - began) / calls, (perf_counter_ns() - began) / calls


def capture(case: PreparedPython, job: dict[str, Any]) -> dict[str, Any]:
    """Capture a graph of the calls in `order`; return whether it works.

    If the job is `timed`, replay it once and return `graph_ns`, the nanoseconds of one call.
    """
    order = job["order"]
    try:
        pool = next((graph.pool() for graph, _ in case.graphs.values()), None)
        graph = _captured(lambda: case.run_on(order), pool)
        case.graphs[len(order)] = graph, [case.copies[number].returned for number in order]
    except Exception as error:
        case.synchronize()
        return {"graph": False, "why": str(error).partition("\n")[0][:200]}
    if not job["timed"]:
        return {"graph": True}
    began = perf_counter_ns()
    graph.replay()
    case.synchronize()
    return {"graph": True, "graph_ns": (perf_counter_ns() - began) / len(order)}


def _captured(work: Any, pool: Any) -> Any:
    """Return a graph of the calls; graphs of one case take their tensors' memory from one `pool`.

    Sharing is safe: what a graph returned is read before another one is replayed.
    """
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with torch.cuda.graph(graph, pool=pool):
            work()
    if any("graph is empty" in str(warning.message).lower() for warning in seen):
        raise RuntimeError("nothing was captured: the kernel uses another stream")
    graph.replay()
    torch.cuda.synchronize()
    return graph


def block(case: PreparedPython, job: dict[str, Any]) -> None:
    """Call once on the last copy, untimed; then time the calls on the copies in `order`.

    In the mode `graph` whole graphs of `unit` calls are replayed.
    """
    order, by_events = job["order"], case.on_gpu and job["mode"] != "wall"
    for number in order:
        case.copies[number].returned = None  # freed here, not within the timed calls
    case.run_on([len(case.copies) - 1])
    case.synchronize()
    function, rows = case.kernel.function, [tuple(case.copies[n].arguments) for n in order]
    results: list[Any] = []
    if job["mode"] == "graph":
        graph, results = case.graphs[job["unit"]]  # a replay writes to the values of its capture
        function, rows = graph.replay, [()] * (len(order) // job["unit"])
    returned = case.kernel.loop.python_block(function, rows, _steps(case, job, by_events),
                                             stop=job["stop"])
    for number, value in zip(order, results or returned, strict=False):
        case.copies[number].returned = value


def _steps(case: PreparedPython, job: dict[str, Any], by_events: bool) -> list[Any]:
    """Return what happens around the calls: fetch, ready, begin, end, await, elapsed."""
    fetch = partial(case.fetch, 0, 1 + max(job["order"])) if job["fetch"] else None
    if not case.on_gpu:
        return [fetch, None, None, None, None, None]
    if not by_events:
        return [fetch, case.synchronize, None, None, case.synchronize, None]
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    return [fetch, torch.cuda.synchronize, begin.record, end.record, torch.cuda.synchronize,
            partial(begin.elapsed_time, end)]
