"""Loads and calls a Python or Triton kernel: a function over torch tensors, on CPU or GPU.

Its tensors lie in slots of shared memory, which the oracle fills and reads.
"""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from functools import partial, reduce
from typing import Any

import torch
from torch.utils import dlpack

from .import_tree import import_file, module_of
from .returned_memory import memories_of, plain

TENSOR = torch.Tensor
TUPLES = (tuple, *(kind for kind in vars(torch.return_types).values() if isinstance(kind, type)))
"""Bound before a kernel is loaded, which may replace names of torch."""
POISON = 0xFF  # a quiet NaN in every float width, -1 or 255 in integers


class TensorBuffer:
    """One tensor argument in a slot of memory.

    With a `layout` the tensor is a view: every other column of a wider tensor, or a transposed one.
    """

    def __init__(self, tensor: dict[str, Any], slot: Any) -> None:
        self.description = tensor
        self.role, self.output = tensor["role"], tensor["role"] == "output"
        self.weight = bool(tensor["weight"])
        shape, layout = list(tensor["shape"]), tensor.get("layout", "")
        stored = [*shape[:-1], 2 * shape[-1]] if layout == "columns" else \
            [*shape[:-2], shape[-1], shape[-2]] if layout == "transposed" else shape
        self.raw = slot[tensor["offset"]:tensor["offset"] + tensor["nbytes"]]
        memory = dlpack.from_dlpack(self.raw) if self.raw.numel() else self.raw
        # dlpack: a separate storage, from which no other slot can be reached;
        # .data: a version counter of its own
        self.stored = memory.view(getattr(torch, tensor["stored"])).view(stored).data
        self.tensor = self.stored[..., ::2] if layout == "columns" else \
            self.stored.transpose(-1, -2) if layout == "transposed" else self.stored

    def poison(self) -> None:
        self.raw.fill_(POISON)

    def touch(self) -> None:
        """Increment the version of a tensor whose contents were changed from outside."""
        plain(self.stored).view(-1)[:0].zero_()

    def move(self, to: list[int], source: list[int]) -> None:
        """Copy elements over others in place; only a weight's tensor version increases."""
        flat = (plain(self.tensor) if self.weight else self.tensor.data).view(-1)
        targets, sources = (torch.tensor(at, device=flat.device) for at in (to, source))
        if flat.dtype.itemsize == 1:
            flat = flat.view(torch.uint8)  # eight-bit floats cannot be indexed everywhere
        flat[targets] = flat[sources]


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
    """The entry function of a source file, with the operations that a runner needs.

    `loop` is the compiled loop that times its calls; None where nothing is timed.
    """

    def __init__(self, job: dict[str, Any], loop: Any) -> None:
        self.loop = loop
        self.device, self.interpret = job["device"], job["interpret"]
        self.on_gpu = self.device != "cpu"
        self.gpus = range(torch.cuda.device_count() if self.on_gpu else 0)
        self.returns = job["returns"]
        expect_unchanged(job)
        self.facts = {"torch": torch.__version__, "sha256": job["sha256"]}
        if self.on_gpu:
            torch.cuda.set_device(self.device)
            self.facts["card"] = torch.cuda.get_device_name()
        self.as_cuda: Any = nullcontext()
        if self.interpret:
            from ..interpreter.cpu_as_cuda import CpuAsCuda, install

            self.as_cuda = CpuAsCuda() if install() else self.as_cuda
        with self.as_cuda:
            self.module, self.function = self.opened(job)

    def opened(self, job: dict[str, Any]) -> tuple[Any, Any]:
        """Return what was loaded, and the function that is called with a call's arguments."""
        return load(job)

    def arguments(self, tensors: list[dict[str, Any]], slot: Any,
                  weights: Call | None = None) -> Call:
        """Return a call with its tensors in a slot; its weights are those of the call `weights`."""
        arguments: list[Any] = []
        buffers: list[TensorBuffer | None] = []
        for index, tensor in enumerate(tensors):
            if tensor["role"] == "scalar":
                arguments.append(constant(tensor, self.device))
                buffers.append(None)
                continue
            of_weights = weights is not None and tensor["weight"] and tensor["role"] == "input"
            buffer = weights.buffers[index] if weights is not None and of_weights else \
                TensorBuffer(tensor, slot)
            assert buffer is not None
            arguments.append(buffer.tensor)
            buffers.append(buffer)
        return Call(arguments, buffers)

    def on_buffers_of(self, call: Call, tensors: list[dict[str, Any]]) -> Call:
        """Return a call of this kernel on the buffers of another kernel's call."""
        return call

    def packed(self, tensors: list[dict[str, Any]], values: list[Any]) -> list[Any]:
        """Return the function's arguments for a call's tensors and scalars."""
        return values

    def call(self, call: Call) -> None:
        try:
            with self.as_cuda:
                call.returned = self.function(*call.arguments)
        except Exception as error:
            if self.interpret:
                from ..interpreter.interpret import explained

                if (known := explained(error)) is not None:
                    raise known from None
            raise

    def synchronize(self) -> None:
        for index in self.gpus:
            torch.cuda.synchronize(index)

    def move(self, call: Call, names: list[str], moves: dict[str, Any]) -> None:
        for buffer, name in zip(call.buffers, names, strict=True):
            if buffer is not None and buffer.role == "input" and name in moves:
                buffer.move(*moves[name])

    def returned(self, call: Call) -> list[Any]:
        """Return the tensors that a call returned. Raises TypeError for anything else.

        A class derived from Tensor could compute when it is read, and so could a method that is
        an attribute of one tensor.
        """
        values = _members(call.returned)
        for value in values:
            if type(value) is not TENSOR:
                raise TypeError(f"returned {type(value).__name__}, not a torch.Tensor")
        values = [plain(value) for value in values]
        for value in values:
            if value.device != torch.device(self.device):
                raise TypeError(f"returned a tensor on {value.device}, not on {self.device}")
            if value.layout != torch.strided:
                raise TypeError(f"returned a tensor of layout {value.layout}")
            if value.is_neg() or value.is_conj():
                raise TypeError("returned a tensor whose values are computed when it is read")
        return values

    def described(self, call: Call) -> list[dict[str, Any]]:
        """Return the dtype, the shape and the memory of each tensor that a call returned."""
        values = self.returned(call) if self.returns else []
        return [{"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape),
                 "memory": memory} for value, memory in zip(
                     values, memories_of(values, call.arguments), strict=True)]


def _members(returned: Any) -> list[Any]:
    """Return the members of a tuple or list, or the one value.

    Classes are compared by identity: a class may compare equal to tuple and compute its members.
    """
    kind = type(returned)
    if kind is list:
        return list(returned)
    return list(tuple.__iter__(returned)) if any(kind is known for known in TUPLES) else [returned]


def expect_unchanged(job: dict[str, Any]) -> None:
    """Raise RuntimeError if a kernel's file is not the one that its job names."""
    with open(job["artifact"], "rb") as file:
        if hashlib.sha256(file.read()).hexdigest() != job["sha256"]:
            raise RuntimeError("the source file changed after it was hashed")


def load(job: dict[str, Any]) -> tuple[Any, Any]:
    """Import a kernel; return its module and what calls it: its entry, or the adapter with it.

    The adapter is imported first, so that it imports nothing of the kernel's tree.
    """
    adapter = getattr(module_of("kopt_adapter", job["adapter"]), job["adapter_function"]) \
        if job["adapter"] else None
    module = import_file(job["artifact"], job["root"])
    return module, partial(adapter, module) if adapter else entry_of(module, job["entry"])


def entry_of(module: Any, entry: str) -> Any:
    """Return a function of a module, or of a class in it, by its dotted name."""
    return reduce(getattr, entry.split("."), module)


def constant(tensor: dict[str, Any], device: str) -> Any:
    """Return the value of an argument that is not a tensor."""
    value = tensor["value"]
    if tensor["dtype"] == "tuple":
        return tuple(value)
    if tensor["dtype"] == "dtype":
        return getattr(torch, value)
    return torch.device(device) if tensor["dtype"] == "device" else value


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
    if language == "triton" or interpret:
        import triton

        answer["triton"] = triton.__version__
        if interpret:
            from ..interpreter.interpret import install

            install()
    return answer
