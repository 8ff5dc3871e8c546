"""Times a Python or Triton kernel.

A block has one of three modes. `graph` replays a CUDA graph of several calls, so that Python's
speed does not limit short kernels. `launch` launches call by call between two GPU events. `wall`
does the same by the host's clock, launch overhead included. With several copies of the buffers,
calls rotate through them, so that inputs are not in the cache.
"""

from __future__ import annotations

from time import perf_counter_ns  # bound now: a kernel that replaces time.* later has no effect
from typing import Any

import torch


class PreparedPython:
    """The buffers of one case, in the requested number of copies, and a graph of calls on them."""

    def __init__(self, kernel: Any, job: dict[str, Any]) -> None:
        self.kernel, self.on_gpu = kernel, kernel.on_gpu
        other = job.get("copies_of")
        self.copies = other.copies if other is not None else \
            [kernel.buffers(job["tensors"]) for _ in range(job["copies"])]
        if other is not None:
            self.poison()
        self.graph: Any = None
        self.unit = 1
        self.decoys: dict[Any, Any] = {}

    @property
    def flat(self) -> list[Any]:
        """Return the first copy's tensors by argument, flattened; None for a scalar."""
        return [None if buffer is None else buffer.tensor.view(-1)
                for buffer in self.copies[0].buffers]

    def exchange(self, copy: int, moves: list[list[int]]) -> None:
        """Copy elements within inputs, in order; a move is [argument, to, from]."""
        for index, to, source in moves:
            flat = self.copies[copy].buffers[index].tensor.view(-1)
            flat[to].copy_(flat[source])
        self.synchronize()

    def poison(self) -> None:
        for call in self.copies:
            call.poison()

    def run(self, calls: int) -> None:
        """Launch call by call, each on the next copy."""
        work, copies = self.kernel.call, self.copies
        for number in range(calls):
            work(copies[number % len(copies)])

    def synchronize(self) -> None:
        self.kernel.synchronize()

    def decoy(self, dtype: Any) -> Any:
        if dtype not in self.decoys:
            self.decoys[dtype] = torch.zeros(256, dtype=torch.uint8,
                                             device=self.kernel.device).view(dtype)
        return self.decoys[dtype]


def prepare(kernel: Any, job: dict[str, Any]) -> PreparedPython:
    """Return the buffers of one case after one call on each copy, which also compiles."""
    case = PreparedPython(kernel, job)
    case.run(len(case.copies))
    case.synchronize()
    return case


def trim() -> None:
    """Return unused GPU memory to the driver."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def warm(case: PreparedPython, warm_ns: int) -> dict[str, Any]:
    """Call for about `warm_ns`; return the nanoseconds of one call."""
    call_ns = _launched(case, 3)
    call_ns = _launched(case, max(3, min(2000, int(warm_ns / max(call_ns, 1.0)))))
    return {"call_ns": call_ns}


def _launched(case: PreparedPython, calls: int) -> float:
    began = perf_counter_ns()
    case.run(calls)
    case.synchronize()
    return (perf_counter_ns() - began) / calls


def capture(case: PreparedPython, unit: int) -> dict[str, Any]:
    """Capture a graph of `unit` calls; return whether it works, and the ns of one call."""
    try:
        case.graph = _captured(lambda: case.run(unit))
        case.unit = unit
    except Exception as error:
        case.synchronize()
        return {"graph": False, "why": str(error).partition("\n")[0][:200]}
    began = perf_counter_ns()
    case.graph.replay()
    case.synchronize()
    return {"graph": True, "graph_ns": (perf_counter_ns() - began) / unit}


def _captured(work: Any) -> Any:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def block(case: PreparedPython, calls: int, mode: str) -> int:
    """Return the nanoseconds of `calls` calls, after some that are not timed.

    The outputs are poisoned in between, so they afterwards hold what the timed calls wrote.
    """
    if mode == "graph":
        rounds, replay = calls // case.unit, case.graph.replay

        def work() -> None:
            for _ in range(rounds):
                replay()
        replay()
    else:
        def work() -> None:
            case.run(calls)
        case.run(1)
    case.poison()
    return _timed(case, work, by_events=mode != "wall")


def _timed(case: PreparedPython, work: Any, *, by_events: bool) -> int:
    if not (case.on_gpu and by_events):
        case.synchronize()
        began = perf_counter_ns()
        work()
        case.synchronize()
        return perf_counter_ns() - began
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return int(begin.elapsed_time(end) * 1e6)


def probe(case: PreparedPython, chain: list[list[int]], fresh: bool, graph: bool = False) -> int:
    """Return the nanoseconds of calls with a move before each: in the inputs, or in a decoy.

    All calls use the first copy of the buffers.
    """
    flat, call = case.flat, case.copies[0]
    steps = []
    for index, to, source in chain:
        tensor = flat[index]
        if not fresh:
            tensor = case.decoy(tensor.dtype)
            to, source = to % tensor.numel(), source % tensor.numel()
        steps.append((tensor[to], tensor[source]))

    def once() -> None:
        for to, source in steps:
            to.copy_(source)
            case.kernel.call(call)

    if not graph:
        case.kernel.call(call)
        case.poison()
        return _timed(case, once, by_events=False)
    recorded = _recorded(once)
    case.graph.replay()
    case.poison()
    return _timed(case, recorded.replay, by_events=True)


def _recorded(work: Any) -> Any:
    """Capture without a replay, which would move elements that the harness does not know of."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph
