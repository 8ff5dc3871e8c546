"""Patches Triton's CPU interpreter so that its silent errors become visible.

TRITON_INTERPRET=1 must be set before triton is imported. The interpreter computes bf16 wrongly
without an error. So bf16 buffers are passed as float32, and a kernel that creates bf16 values is
not judged here. autotune fails in the interpreter, so the first config is used.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

BF16 = ("the kernel creates bfloat16 values, which Triton's interpreter computes wrongly: "
        "checking it needs a GPU")


NO_RESULT = "functions of Triton's extra libraries give nothing in its interpreter"
LACKS: tuple[tuple[type[Exception], str, str], ...] = (
    (NotImplementedError, "", "Triton's interpreter cannot do this"),
    (AttributeError, r"'InterpreterBuilder' object has no", "Triton's interpreter cannot do this"),
    (ValueError, "Did you forget to add @triton.jit",
     "Triton's interpreter cannot call functions of its extra libraries"),
    (AttributeError, "'NoneType' object has no", NO_RESULT),
    (TypeError, "cannot convert None of type", NO_RESULT))
"""What the interpreter raises in a kernel that a GPU would run: exception, pattern and reason."""


class NeedsGpu(RuntimeError):
    """The kernel uses an operation that the interpreter lacks or computes wrongly."""


class FirstConfig:
    """Replaces an autotuner: launches with the first of its configs."""

    def __init__(self, function: Any, config: Any) -> None:
        self.fn, self.config = function, config
        self.arg_names = getattr(function, "arg_names", ())
        self.__name__ = getattr(function, "__name__", "kernel")

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        named = {**kwargs, **self.config.all_kwargs()}
        if self.config.pre_hook is not None:
            self.config.pre_hook({**dict(zip(self.arg_names, args, strict=False)), **named})
        return self.fn.run(*args, **named)


def use_first_configs() -> None:
    """Make autotuners of this process take their first config."""
    import triton
    from triton.runtime import autotuner

    def autotune(configs: list[Any], *_: Any, **__: Any) -> Any:
        first = configs[0] if configs else triton.Config({})
        return lambda function: FirstConfig(function, first)

    triton.autotune = triton.runtime.autotune = autotuner.autotune = autotune


def driver_of(target: Any, properties: dict[str, Any]) -> SimpleNamespace:
    """Return what replaces Triton's driver: it describes one device and launches nothing.

    Its timer times nothing: an autotuner then takes its first config.
    """
    import torch

    cpu = torch.device("cpu")
    return SimpleNamespace(
        get_benchmarker=lambda: lambda *_, **__: [0.0, 0.0, 0.0],
        get_current_target=lambda: target, get_current_device=lambda: 0,
        get_current_stream=lambda device=0: 0, set_current_device=lambda device: None,
        get_active_torch_device=lambda: cpu,
        utils=SimpleNamespace(get_device_properties=lambda *_: dict(properties)))


def do_bench(function: Any, *_: Any, quantiles: Any = None, **__: Any) -> Any:
    """Replace Triton's timer where nothing is timed: call once, and return 1 ms."""
    function()
    return 1.0 if quantiles is None else [1.0 for _ in quantiles]


def do_without_card() -> None:
    """Let host code of this process query and select a card on a machine that has none."""
    from importlib import import_module

    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    from .cpu_as_cuda import PROPERTIES, install

    if install():
        driver.set_active(driver_of(GPUTarget("cpu", 0, 0), PROPERTIES))
        testing: Any = import_module("triton.testing")
        testing.do_bench = testing.do_bench_cudagraph = do_bench


def pass_floats_as_scalars() -> None:
    """Let kernels of this process get Python floats as float32 scalars, as on a GPU."""
    import numpy
    import triton.language as tl
    from triton.runtime import interpreter

    original: Any = interpreter._implicit_cvt

    def convert(value: Any) -> Any:
        if type(value) is not float:
            return original(value)
        handle: Any = interpreter.TensorHandle(numpy.array([value], numpy.float32), tl.float32)
        return tl.tensor(handle, tl.float32)

    if original.__name__ != "convert":
        interpreter._implicit_cvt = convert


def prepare() -> None:
    """Let host code of this process run without a card, with the first config of each autotuner.

    Kernels may store only in their tensors, and get floats as scalars of float32.
    """
    from . import libdevice, store_bounds

    do_without_card()
    store_bounds.install()
    libdevice.install()
    pass_floats_as_scalars()
    use_first_configs()


def install() -> None:
    """Patch this process's Triton as `prepare` does, and make bfloat16 values raise NeedsGpu."""
    from triton.runtime import interpreter

    prepare()
    original = interpreter.TensorHandle.__post_init__
    if original.__name__ == "checked":
        return

    def checked(self: Any) -> None:
        if self.get_element_ty().name == "bf16":
            raise NeedsGpu(BF16)
        original(self)

    interpreter.TensorHandle.__post_init__ = checked
    _index_by_one_element(interpreter)


def _index_by_one_element(interpreter: Any) -> None:
    """Let a tensor of one element be a loop's bound: with NumPy 2.4, Triton 3.6 fails on it."""
    original = interpreter._patch_lang_tensor

    def patch(tensor: Any, *scope: Any) -> None:
        original(tensor, *scope)  # it restores `__index__` by itself
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patch


def explained(error: BaseException) -> RuntimeError | None:
    """Return the error that says why a kernel failed in the interpreter, None for any other error.

    It is NeedsGpu if the interpreter is the cause. A store outside the tensors is the kernel's own.
    """
    from triton.runtime.errors import InterpreterError

    from .store_bounds import StoreOutside

    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    interpreted = False
    for seen in causes:
        if isinstance(seen, NeedsGpu):
            return NeedsGpu(str(seen))
        if interpreted:  # raised in the interpreter: host code would fail in the same way on a GPU
            for kind, pattern, reason in LACKS:
                if type(seen) is kind and re.search(pattern, str(seen)):
                    return NeedsGpu(f"{reason} ({seen}): checking it needs a GPU")
        interpreted = interpreted or isinstance(seen, InterpreterError)
    outside = [seen for seen in causes if isinstance(seen, StoreOutside)]
    return RuntimeError(str(outside[0])) if outside else None
