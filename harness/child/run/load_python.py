"""Loads and calls a Python or Triton kernel: a function over torch tensors, on CPU or GPU.

Buffers are allocated before anything is timed. Outputs are poisoned with NaN, and a poisoned guard
zone follows each buffer.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import sys
from collections import deque
from typing import Any

import torch

POISON = 0xFF  # a quiet NaN in every float width, -1 or 255 in integers
GUARD_BYTES = 4096
KEPT_BYTES = 2 << 30
_in_place = [""]
"""The tree whose modules are importable at present; see `turn_to`."""
_aside: dict[str, tuple[dict[str, Any], list[str]]] = {}


def memory(tensor: Any) -> Any:
    """Return a CPU tensor's bytes as a writable buffer, without numpy."""
    count = tensor.numel() * tensor.element_size()
    return (ctypes.c_char * count).from_address(tensor.data_ptr())


class TensorBuffer:
    """One tensor argument: the payload and the guard zone behind it.

    With a `layout` the tensor is a view: every other column of a wider tensor, or a transposed one.
    """

    def __init__(self, tensor: dict[str, Any], device: str, interpret: bool) -> None:
        self.declared = getattr(torch, tensor["dtype"])
        widened = interpret and self.declared == torch.bfloat16
        self.dtype = torch.float32 if widened else self.declared
        self.role, self.output = tensor["role"], tensor["role"] == "output"
        self.path, self.path_bytes = tensor["path"], tensor["nbytes"]
        self.weight = bool(tensor.get("weight"))
        shape, self.layout = list(tensor["shape"]), tensor.get("layout", "")
        stored = [*shape[:-1], 2 * shape[-1]] if self.layout == "columns" else \
            [*shape[:-2], shape[-1], shape[-2]] if self.layout == "transposed" else shape
        self.nbytes = tensor["nbytes"] * (2 if widened else 1) \
            * (2 if self.layout == "columns" else 1)
        self.raw = torch.full((self.nbytes + GUARD_BYTES,), POISON, dtype=torch.uint8,
                              device=device)
        self.stored = self.raw[: self.nbytes].view(self.dtype).view(stored)
        self.tensor = self.stored[..., ::2] if self.layout == "columns" else \
            self.stored.transpose(-1, -2) if self.layout == "transposed" else self.stored

    def fill(self) -> None:
        """Read the contents from the file they were written to."""
        staging = torch.empty(self.path_bytes, dtype=torch.uint8)
        with open(self.path, "rb") as file:
            if file.readinto(memory(staging)) != self.path_bytes:
                raise RuntimeError(f"{os.path.basename(self.path)} is too short")
        self.tensor.copy_(staging.view(self.declared).view(self.tensor.shape))

    def poison(self) -> None:
        self.raw.fill_(POISON)

    def move(self, to: list[int], source: list[int]) -> None:
        """Copy elements over others in place; only a weight's tensor version changes with it."""
        flat = (self.tensor if self.weight else self.tensor.data).view(-1)
        there, here = (torch.tensor(at, device=flat.device) for at in (to, source))
        if flat.dtype.itemsize == 1:
            flat = flat.view(torch.uint8)  # eight-bit floats cannot be indexed everywhere
        flat[there] = flat[here]

    def reverse(self) -> None:
        """Reverse the order of the elements, which gives new contents of the same distribution."""
        flat = self.tensor.view(-1)
        if flat.dtype.itemsize == 1:
            flat = flat.view(torch.uint8)
        flat.copy_(flat.flip(0))

    def save(self, path: str) -> None:
        if not bool((self.raw[self.nbytes:] == POISON).all()):
            raise RuntimeError("wrote past its end")
        if self.layout == "columns":
            size = self.stored.element_size()
            between = self.raw[: self.nbytes].view(-1, 2, size)[:, 1]
            if not bool((between == POISON).all()):
                raise RuntimeError("wrote between its elements")
        save(self.tensor.to(self.declared), path)


def save(tensor: Any, path: str) -> None:
    plain = tensor.detach().contiguous().cpu()
    with open(path, "wb") as file:
        if plain.numel():
            file.write(memory(plain))


class Call:
    """The arguments of one case, and the value that the last call returned."""

    def __init__(self, arguments: list[Any], buffers: list[TensorBuffer | None]) -> None:
        self.arguments, self.buffers = arguments, buffers
        self.returned: Any = None

    def poison(self) -> None:
        for buffer in self.buffers:
            if buffer is not None and buffer.output:
                buffer.poison()


class PythonKernel:
    """The entry function of a source file, with the operations that a runner needs."""

    last = None  # returned values are kept with their buffers

    def __init__(self, job: dict[str, Any]) -> None:
        self.device, self.interpret = job["device"], job["interpret"]
        self.on_gpu = self.device != "cpu"
        self.gpus = range(torch.cuda.device_count() if self.on_gpu else 0)
        self.returns = job["returns"]
        self.weights: deque[TensorBuffer] = deque()
        with open(job["artifact"], "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != job["sha256"]:
                raise RuntimeError("the source file changed after it was hashed")
        self.facts = {"torch": torch.__version__, "sha256": job["sha256"]}
        if self.on_gpu:
            torch.cuda.set_device(self.device)
            self.facts["card"] = torch.cuda.get_device_name()
        self.function = getattr(import_file(job["artifact"], job["root"]), job["entry"])

    def buffers(self, tensors: list[dict[str, Any]]) -> Call:
        arguments: list[Any] = []
        buffers: list[TensorBuffer | None] = []
        for tensor in tensors:
            if tensor["role"] == "scalar":
                arguments.append(tensor["value"])
                buffers.append(None)
                continue
            buffer = TensorBuffer(tensor, self.device, self.interpret)
            if not buffer.output:
                buffer.fill()
            arguments.append(buffer.tensor)
            buffers.append(buffer)
            if tensor["weight"]:
                self._keep(buffer)
        return Call(arguments, buffers)

    def _keep(self, buffer: TensorBuffer) -> None:
        """Keep a weight alive, so that no other tensor gets its address: caches may use it."""
        self.weights.append(buffer)
        while sum(weight.nbytes for weight in self.weights) > KEPT_BYTES and len(self.weights) > 1:
            self.weights.popleft()

    def call(self, call: Call) -> None:
        try:
            call.returned = self.function(*call.arguments)
        except Exception as error:
            if self.interpret:
                from .interpret import NeedsGpu, refusal

                if reason := refusal(error):
                    raise NeedsGpu(reason) from None
            raise

    def synchronize(self) -> None:
        for index in self.gpus:
            torch.cuda.synchronize(index)

    def renew(self, call: Call) -> None:
        """Prepare the buffers for another call: poison outputs, reload in-place arguments."""
        call.poison()
        for buffer in call.buffers:
            if buffer is not None and buffer.role == "inout":
                buffer.fill()

    def move(self, call: Call, names: list[str], moves: dict[str, Any]) -> None:
        for buffer, name in zip(call.buffers, names, strict=True):
            if buffer is not None and buffer.role == "input" and name in moves:
                buffer.move(*moves[name])

    def reverse(self, call: Call) -> None:
        for buffer in call.buffers:
            if buffer is not None and not buffer.output:
                buffer.reverse()

    def write(self, call: Call, _: None, tensors: list[dict[str, Any]],
              outputs_only: bool = False) -> list[dict[str, Any]]:
        self.synchronize()
        written = []
        for buffer, tensor in zip(call.buffers, tensors, strict=True):
            if buffer is None or (outputs_only and buffer.role == "input"):
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


def import_file(path: str, root: str) -> Any:
    """Import the kernel's file with its folder and the project's root on sys.path."""
    turn_to(root)
    sys.path[:0] = list(dict.fromkeys([os.path.dirname(path), root]))
    spec = importlib.util.spec_from_file_location("kopt_kernel", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {os.path.basename(path)}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["kopt_kernel"] = module
    spec.loader.exec_module(module)
    return module


def turn_to(root: str) -> None:
    """Switch sys.modules and sys.path to one tree's.

    Where two kernels share a process, each then imports its own modules at any time.
    """
    current = _in_place[-1]
    if root == current:
        return
    modules = {name: module for name, module in sys.modules.items()
               if _below(getattr(module, "__file__", None), current)}
    paths = [path for path in sys.path if _below(path, current)]
    _aside[current] = modules, paths
    for name in modules:
        del sys.modules[name]
    _in_place[:] = [root]
    modules, others = _aside.pop(root, ({}, []))
    sys.modules.update(modules)
    sys.path[:] = [*others, *(path for path in sys.path if path not in paths)]


def _below(path: str | None, root: str) -> bool:
    return bool(root and path) and f"{path}{os.sep}".startswith(root + os.sep)


def make_context(device: str) -> None:
    """Create the process's context on the GPU, which takes a good part of a second."""
    torch.zeros(1, device=device)
    torch.cuda.synchronize()


def preload(language: str, device: str, interpret: bool) -> dict[str, Any]:
    """Import what every kernel of a language needs, before a kernel is loaded.

    `no_gpu` in the answer says why this process cannot reach its GPU.
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
            from . import interpret as traps

            traps.install()
    return answer
