"""Makes code that asks for a CUDA device run on the CPU, on a machine without a GPU.

Tests and wrappers of public kernels name their device: `device="cuda"`, `x.cuda()`, `x.is_cuda`.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

CAPABILITY = 8, 0
PROPERTIES = {"multi_processor_count": 1, "multiprocessor_count": 1, "warp_size": 32,
              "warpSize": 32, "max_threads_per_multi_processor": 2048, "max_num_regs": 1 << 16,
              "max_shared_mem": 1 << 17, "shared_memory_per_block_optin": 1 << 17,
              "major": CAPABILITY[0], "minor": CAPABILITY[1], "total_memory": 1 << 34,
              "name": "Triton's interpreter"}
"""What host code reads about the card, which is absent: kernels run in the interpreter."""
NO_OPS = ("synchronize", "empty_cache", "manual_seed", "manual_seed_all", "set_device", "init",
          "reset_peak_memory_stats", "ipc_collect")
"""Functions of torch.cuda that do nothing here."""


def _on_cpu(value: Any) -> Any:
    is_cuda = value.type == "cuda" if isinstance(value, torch.device) else \
        isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))
    return torch.device("cpu") if is_cuda else value


class CpuAsCuda(TorchFunctionMode):
    """Replaces CUDA devices among the arguments of torch's functions."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        if function is torch.Tensor.cuda:
            return args[0]
        if function == _IS_CUDA:
            return True
        return function(*map(_on_cpu, args),
                        **{name: _on_cpu(value) for name, value in (kwargs or {}).items()})


_IS_CUDA: Any = vars(torch._C.TensorBase)["is_cuda"].__get__
_Generator: Any = torch.Generator


class CpuGenerator(_Generator):  # type: ignore[misc]
    """A generator of random numbers on the CPU, whatever device is asked for."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return _Generator.__new__(cls, _on_cpu(device))


def _is_available() -> bool:
    return True


def install() -> bool:
    """Let torch.cuda describe the CPU unless there is a GPU; return whether it describes the CPU.

    Code that names a CUDA device also needs the mode CpuAsCuda.
    """
    cuda: Any = import_module("torch.cuda")
    if cuda.is_available is _is_available or cuda.is_available():
        return cuda.is_available is _is_available
    cuda.is_available, cuda.device_count = _is_available, lambda: 1
    cuda.device, cuda.current_device = contextlib.nullcontext, lambda: 0
    cuda.get_device_name = lambda *_: PROPERTIES["name"]
    cuda.get_device_capability = lambda *_: CAPABILITY
    cuda.get_device_properties = lambda *_: SimpleNamespace(**PROPERTIES)
    cuda.max_memory_allocated = cuda.memory_allocated = lambda *_: 0
    for name in NO_OPS:
        setattr(cuda, name, lambda *_, **__: None)
    module: Any = torch
    module.Generator = CpuGenerator
    return True


def use_always() -> None:
    """Let all further code of this process use the CPU as its CUDA device, unless it has one."""
    if install() and not any(isinstance(mode, CpuAsCuda)
                             for mode in _get_current_function_mode_stack()):
        CpuAsCuda().__enter__()
