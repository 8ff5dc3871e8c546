"""Detects what a kernel changed in its process, by a snapshot taken before the kernel is loaded.

It runs in the kernel's process, so a kernel written against it could forge its answers: it is a
tripwire. Its caller checks and bounds the answers. Standard library only, and torch if loaded.
"""

from __future__ import annotations

import builtins
import gc
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import reduce
from os import environ  # bound now: a kernel may replace the name
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .threads_and_code import Code, running, tasks

MOST = 20
MOST_LETTERS = 200
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TORCH = """
    _C._len_torch_function_stack _C._len_torch_dispatch_stack return_types
    Tensor Tensor.copy_ Tensor.view Tensor.cpu Tensor.fill_ Tensor.data_ptr Tensor.flip Tensor.to
    Tensor.contiguous Tensor.detach Tensor.numel Tensor.element_size Tensor.transpose Tensor.all
    Tensor.__getitem__ Tensor.__setitem__ Tensor.__eq__ Tensor.data Tensor.shape Tensor.dtype
    Tensor.device Tensor.layout full empty zeros tensor device allclose equal isclose
    testing.assert_close cuda.synchronize cuda.Event cuda.Event.record cuda.Event.synchronize
    cuda.Event.elapsed_time cuda.Event.wait cuda.Event.query cuda.CUDAGraph
    cuda.CUDAGraph.replay cuda.CUDAGraph.capture_begin cuda.CUDAGraph.capture_end cuda.graph
    cuda.graph.__enter__ cuda.graph.__exit__ cuda.set_device cuda.current_stream"""
OF_COMPILE = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_CACHE_DIR", "KMP_DUPLICATE_LIB_OK",
              "CUBLAS_WORKSPACE_CONFIG")
"""How the names begin of environment variables that torch.compile sets for itself."""
TOOLS = ("TRITON_PTXAS_PATH", "TRITON_LIBDEVICE_PATH")
"""torch.compile sets these too, to files installed with torch."""
FLAGS = """
    backends.fp32_precision backends.cuda.matmul.allow_tf32 backends.cuda.matmul.fp32_precision
    backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    backends.cuda.matmul.allow_fp16_accumulation backends.cudnn.enabled backends.cudnn.benchmark
    backends.cudnn.benchmark_limit backends.cudnn.deterministic backends.cudnn.allow_tf32
    backends.cudnn.fp32_precision backends.cudnn.conv.fp32_precision
    backends.cudnn.rnn.fp32_precision backends.mkldnn.enabled backends.mkldnn.deterministic
    backends.mkldnn.matmul.fp32_precision backends.mkldnn.conv.fp32_precision"""
CALLS = """
    get_float32_matmul_precision get_default_dtype get_default_device is_grad_enabled
    is_inference_mode_enabled is_anomaly_enabled is_autocast_enabled is_autocast_cpu_enabled
    are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled
    get_num_threads get_num_interop_threads get_deterministic_debug_mode
    backends.cuda.flash_sdp_enabled backends.cuda.mem_efficient_sdp_enabled
    backends.cuda.math_sdp_enabled backends.cuda.cudnn_sdp_enabled
    backends.cuda.preferred_linalg_library backends.cuda.preferred_blas_library
    _C._len_torch_function_stack _C._len_torch_dispatch_stack"""
ABSENT = object()


class ProcessWatch:
    """Watches `runner`, the loaded modules of this package, and parts of Python and torch."""

    def __init__(self, runner: Any, job: dict[str, Any]) -> None:
        self._runner, self._language = runner, job["language"]
        self._named = [(module, [name for name, value in vars(module).items() if callable(value)])
                       for module in (time, builtins)]
        self._named += [(json, ["dumps", "loads"]), (os, ["write", "read", "_exit"])]
        self._modules = [module for module in list(sys.modules.values()) if _is_ours(module)]
        self._before = {label: (value, _fingerprint(value)) for label, value in self._watched()}
        self._settings = settings_now()
        self._tasks = set(tasks())
        self._code = Code(job["artifact"], job["root"], native=self._language == "c")
        self._sealed: list[Any] = []

    def seal(self) -> None:
        """Remember the loaded kernel, so that a replacement is noticed."""
        self._sealed = self._opened()

    def look(self) -> dict[str, Any]:
        """Return what changed since the snapshot: {"seen": [{"rule": ..., "detail": ...}]}."""
        sightings = {"threads": running(self._tasks), "patched": self._patched(),
                     "global-flags": changed_settings(self._settings),
                     "hidden-code": self._code.added()}
        return bounded([(rule, text) for rule in ("patched", "hidden-code", "threads",
                                                  "global-flags") for text in sightings[rule]])

    def _patched(self) -> list[str]:
        changes, seen = [], set()
        for label, value in self._watched():
            seen.add(label)
            before, fingerprint = self._before.get(label, (ABSENT, ()))
            if value is not before or not _alike(_fingerprint(value), fingerprint):
                changes.append(f"{label} was replaced" if before is not ABSENT
                               else f"{label} was added")
        changes += [f"{label} was removed" for label in self._before if label not in seen]
        changes += self._shadowed()
        if len(now := self._opened()) != len(self._sealed) or any(
                current is not sealed for current, sealed in zip(now, self._sealed, strict=True)):
            changes.append("the loaded kernel was replaced")
        if sys.gettrace() is not None or sys.getprofile() is not None:
            changes.append("a trace or profile function was set")
        return changes + self._code.changed()

    def _watched(self) -> Iterator[tuple[str, Any]]:
        """Yield (name, object) of everything that must not change."""
        for module, names in self._named:
            yield from ((f"{module.__name__}.{name}", getattr(module, name, ABSENT))
                        for name in names)
        encoder = json._default_encoder  # type: ignore[attr-defined]
        for label, owner in (("socket", socket.socket), ("_socket", socket.socket.__base__),
                             ("SocketIO", socket.SocketIO), ("JSONEncoder", json.JSONEncoder),
                             ("JSONDecoder", json.JSONDecoder), ("json's encoder", encoder)):
            yield from ((f"{label}.{name}", value) for name, value in list(vars(owner).items()))
        for name in ("time", "json", "socket", "os", "builtins", "torch", "__main__"):
            yield f"the module {name}", sys.modules.get(name, ABSENT)
        torch = sys.modules.get("torch")
        for name in TORCH.split() if torch is not None else ():
            try:
                yield f"torch.{name}", reduce(getattr, name.split("."), torch)
            except AttributeError:
                yield f"torch.{name}", ABSENT
        for module in self._modules:
            yield from _inside(module)

    def _opened(self) -> list[Any]:
        kernel = getattr(self._runner, "kernel", None)
        return [kernel, getattr(kernel, "function", None), getattr(self._runner, "clock", None)]

    def _shadowed(self) -> list[str]:
        """Return a finding for each method of the runner's objects that an attribute hides."""
        runner = self._runner
        objects = [runner, runner.kernel, *getattr(runner, "prepared", {}).values()]
        return [f"{type(item).__name__}.{name} was replaced" for item in objects if item is not None
                for name in vars(item) if callable(getattr(type(item), name, None))]


def bounded(seen: list[tuple[str, str]]) -> dict[str, Any]:
    """Return an answer of bounded length, without duplicates."""
    return {"seen": [{"rule": rule, "detail": detail[:MOST_LETTERS]}
                     for rule, detail in list(dict.fromkeys(seen))[:MOST]]}


def _is_ours(module: Any) -> bool:
    """Return whether a module is of kopt_child; not a package, which later imports extend."""
    file = getattr(module, "__file__", None)
    return isinstance(module, ModuleType) and isinstance(file, str) \
        and not hasattr(module, "__path__") and os.path.abspath(file).startswith(PACKAGE + os.sep)


def _inside(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield a module's globals and the attributes of its own classes."""
    short_name = module.__name__.rpartition(".")[2]
    for name, value in list(vars(module).items()):
        if name.startswith("__"):
            continue
        yield f"{short_name}.{name}", value
        if isinstance(value, type) and value.__module__ == module.__name__:
            for part, inner in list(vars(value).items()):
                if part not in ("__doc__", "__dict__", "__weakref__"):
                    yield f"{short_name}.{name}.{part}", inner


def _fingerprint(value: Any) -> tuple[Any, ...]:
    """Return what identifies a function's code and defaults; see `_alike`."""
    if isinstance(value, property):
        return (*_fingerprint(value.fget), *_fingerprint(value.fset))
    function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    if not isinstance(function, FunctionType):
        return ()
    code = function.__code__
    return code, function.__defaults__, _code(code), repr(function.__kwdefaults__)


def _alike(before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    """Return whether two fingerprints have the same code objects, with nothing changed in them."""
    return len(before) == len(after) and all(
        a is b if isinstance(a, CodeType) else a == b for a, b in zip(before, after, strict=True))


def _code(code: CodeType) -> tuple[Any, ...]:
    inner = tuple(_code(const) if isinstance(const, CodeType) else const
                  for const in code.co_consts)
    return code.co_code, code.co_names, inner


def settings_now() -> dict[str, str]:
    """Return flags of Python and torch, and the environment, as text by name."""
    flags = {f"the environment's {name}": value for name, value in environ.items()
             if not name.startswith(OF_COMPILE)
             and not (name in TOOLS and value.startswith(f"{sys.prefix}/"))}
    flags["Python's garbage collector"] = str((gc.isenabled(), gc.get_threshold()))
    flags["Python's switch interval"] = str(sys.getswitchinterval())
    torch = sys.modules.get("torch")
    if torch is None:
        return flags
    for name in FLAGS.split():
        flags[f"torch.{name}"] = _setting(torch, name, lambda value: value)
    for name in CALLS.split():
        flags[f"torch.{name}"] = _setting(torch, name, lambda value: value())
    flags["flush-to-zero mode"] = str(sys.float_info.min / 2 == 0)
    return flags


def changed_settings(before: dict[str, str]) -> list[str]:
    """Return the settings that differ from `before`."""
    after = settings_now()
    return [f"{name} was changed" for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)]


def _setting(torch: Any, name: str, read: Callable[[Any], Any]) -> str:
    try:
        return str(read(reduce(getattr, name.split("."), torch)))
    except Exception as error:  # torch refuses to read some flags once newer ones are set
        return type(error).__name__
