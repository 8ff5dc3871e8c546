"""A Python or Triton kernel: a function over torch tensors, on the CPU, a GPU or interpreted.

Buffers are allocated before anything is timed, outputs poisoned with NaN, a poisoned guard behind
each. On a GPU a block is replays of a CUDA graph of some calls, so that short kernels are not
timed at the speed of Python; where a call cannot be captured it is launched one by one.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import sys
import time
from typing import Any

import torch

POISON = 0xFF  # a quiet NaN in every float width, -1 or 255 in integers
GUARD_BYTES = 4096
GRAPH_CALLS = 64
GRAPH_NS = 1_000_000


def memory(tensor: Any) -> Any:
    """Return a CPU tensor's bytes as a writable buffer, without numpy."""
    count = tensor.numel() * tensor.element_size()
    return (ctypes.c_char * count).from_address(tensor.data_ptr())


class Buffer:
    """One tensor argument: the payload, and the guard behind it."""

    def __init__(self, tensor: dict[str, Any], device: str, interpret: bool) -> None:
        self.declared = getattr(torch, tensor["dtype"])
        widened = interpret and self.declared == torch.bfloat16
        self.dtype = torch.float32 if widened else self.declared
        self.nbytes = tensor["nbytes"] * (2 if widened else 1)
        self.raw = torch.full((self.nbytes + GUARD_BYTES,), POISON, dtype=torch.uint8,
                              device=device)
        self.tensor = self.raw[: self.nbytes].view(self.dtype).view(tensor["shape"])
        self.output = tensor["role"] == "output"

    def fill(self, path: str, nbytes: int) -> None:
        staging = torch.empty(nbytes, dtype=torch.uint8)
        with open(path, "rb") as file:
            if file.readinto(memory(staging)) != nbytes:
                raise RuntimeError(f"{os.path.basename(path)} is too short")
        self.tensor.copy_(staging.view(self.declared).view(self.tensor.shape))

    def poison(self) -> None:
        self.raw.fill_(POISON)

    def save(self, path: str) -> None:
        guard = self.raw[self.nbytes:]
        if not bool((guard == POISON).all()):
            raise RuntimeError("wrote past its end")
        save(self.tensor.to(self.declared), path)


def save(tensor: Any, path: str) -> None:
    plain = tensor.detach().contiguous().cpu()
    with open(path, "wb") as file:
        if plain.numel():
            file.write(memory(plain))


class Call:
    """The arguments of one case, and what the last call returned."""

    def __init__(self, arguments: list[Any], buffers: list[Buffer | None]) -> None:
        self.arguments, self.buffers = arguments, buffers
        self.returned: Any = None
        self.graph: Any = None
        self.unit = 1

    def poison(self) -> None:
        for buffer in self.buffers:
            if buffer is not None and buffer.output:
                buffer.poison()


class PythonKernel:
    last = None  # what a call returned stays with its buffers

    def __init__(self, job: dict[str, Any]) -> None:
        self.device, self.interpret = job["device"], job["interpret"]
        self.on_gpu = self.device != "cpu"
        self.returns = job["returns"]
        with open(job["artifact"], "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != job["sha256"]:
                raise RuntimeError("the source is not the one that was to be run")
        self.facts = {"torch": torch.__version__, "sha256": job["sha256"]}
        if self.on_gpu:
            torch.cuda.set_device(self.device)
            self.facts["card"] = torch.cuda.get_device_name()
        self.function = getattr(import_file(job["artifact"], job["root"]), job["entry"])

    def buffers(self, tensors: list[dict[str, Any]]) -> Call:
        arguments: list[Any] = []
        buffers: list[Buffer | None] = []
        for tensor in tensors:
            if tensor["role"] == "scalar":
                arguments.append(tensor["value"])
                buffers.append(None)
                continue
            buffer = Buffer(tensor, self.device, self.interpret)
            if not buffer.output:
                buffer.fill(tensor["path"], tensor["nbytes"])
            arguments.append(buffer.tensor)
            buffers.append(buffer)
        return Call(arguments, buffers)

    def call(self, call: Call) -> None:
        try:
            call.returned = self.function(*call.arguments)
        except Exception as error:
            if self.interpret:
                from interpret import refusal

                if reason := refusal(error):
                    raise RuntimeError(reason) from None
            raise

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def write(self, call: Call, _: None, tensors: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.synchronize()
        written = []
        for buffer, tensor in zip(call.buffers, tensors, strict=True):
            if buffer is None:
                continue
            try:
                buffer.save(tensor["after"])
            except RuntimeError as error:
                raise RuntimeError(f"{tensor['name']}: {error}") from None
            written.append({"name": tensor["name"], "path": tensor["after"],
                            "dtype": tensor["dtype"], "shape": tensor["shape"]})
        return written + (self._write_returned(call, tensors) if self.returns else [])

    def _write_returned(self, call: Call, tensors: list[dict[str, Any]]) -> list[dict[str, Any]]:
        values = call.returned if isinstance(call.returned, tuple) else (call.returned,)
        written = []
        for index, value in enumerate(values):
            if type(value) is not torch.Tensor:
                raise TypeError(f"returned {type(value).__name__}, not a torch.Tensor")
            if value.device != torch.device(self.device):
                raise TypeError(f"returned a tensor on {value.device}, not on {self.device}")
            if value.layout != torch.strided:
                raise TypeError(f"returned a tensor of layout {value.layout}")
            path = f"{tensors[0]['after']}.return{index}"
            save(value, path)
            written.append({"name": "return", "path": path, "shape": list(value.shape),
                            "dtype": str(value.dtype).removeprefix("torch.")})
        return written

    def prepare(self, call: Call, warm_ns: int) -> dict[str, Any]:
        """Compile and warm; returns the time of a call and whether it can be a CUDA graph."""
        self.call(call)
        self.synchronize()
        call_ns = self._repeat(call, 3)
        call_ns = self._repeat(call, max(3, min(2000, int(warm_ns / max(call_ns, 1.0)))))
        answer: dict[str, Any] = {"graph": False, "why": ""}
        if self.on_gpu:
            unit = GRAPH_CALLS if call_ns * GRAPH_CALLS < 6 * GRAPH_NS else \
                max(1, round(GRAPH_NS / call_ns))
            answer = self._capture(call, unit)
            if answer["graph"]:
                began = time.perf_counter_ns()
                call.graph.replay()
                self.synchronize()
                answer["graph_ns"] = (time.perf_counter_ns() - began) / unit
        return {"call_ns": call_ns, "unit": call.unit, **answer}

    def _repeat(self, call: Call, calls: int) -> float:
        began = time.perf_counter_ns()
        for _ in range(calls):
            self.call(call)
        self.synchronize()
        return (time.perf_counter_ns() - began) / calls

    def _capture(self, call: Call, unit: int) -> dict[str, Any]:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                for _ in range(unit):
                    self.call(call)
            graph.replay()
            self.synchronize()
        except Exception as error:
            self.synchronize()
            return {"graph": False, "why": str(error).partition("\n")[0][:200]}
        call.graph, call.unit = graph, unit
        return {"graph": True, "why": ""}

    def time_block(self, call: Call, calls: int, graph: bool = False) -> int:
        """Return the nanoseconds of `calls` calls, after some that are not timed.

        What is in the outputs afterwards, the timed calls wrote.
        """
        if not self.on_gpu:
            return self._time_cpu(call, calls)
        work, rounds = (call.graph.replay, calls // call.unit) if graph else \
            (lambda: self.call(call), calls)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        work()
        call.poison()
        begin.record()
        for _ in range(rounds):
            work()
        end.record()
        torch.cuda.synchronize()
        return int(begin.elapsed_time(end) * 1e6)

    def _time_cpu(self, call: Call, calls: int) -> int:
        function, arguments = self.function, call.arguments
        function(*arguments)
        call.poison()
        began = time.perf_counter_ns()
        for _ in range(calls):
            call.returned = function(*arguments)
        return time.perf_counter_ns() - began


def import_file(path: str, root: str) -> Any:
    """Import the kernel's file as it lies in its project."""
    sys.path[:0] = list(dict.fromkeys([os.path.dirname(path), root]))
    spec = importlib.util.spec_from_file_location("kopt_kernel", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {os.path.basename(path)}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["kopt_kernel"] = module
    spec.loader.exec_module(module)
    return module


def preload(language: str, device: str, interpret: bool) -> dict[str, Any]:
    """Import what every kernel of a language needs, before any of it is loaded.

    `no_gpu` says why this process cannot reach the GPU that it is to use.
    """
    answer = {"torch": torch.__version__, "no_gpu": ""}
    if device != "cpu":
        try:
            torch.cuda.init()
        except (RuntimeError, AssertionError) as error:
            answer["no_gpu"] = str(error).partition("\n")[0][:300]
    if language == "triton":
        import triton

        answer["triton"] = triton.__version__
        if interpret:
            import interpret as traps

            traps.install()
    return answer
