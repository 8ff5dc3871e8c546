"""Compiles a target's Triton kernels without a GPU and reads the assembler's report.

Runs the host function on uninitialised tensors, with each launch replaced by a compilation. Where
other operations of torch may do most of the work, tensors lie on its `meta` device: without memory,
such operations cost nothing. Argument types, alignments, constants and numbers of warps are those
that a GPU would get, and so is Triton's cache key. Talks JSON lines over a socket. Needs torch and
triton.

`stubs` loads no project code: it builds the small C modules that Triton needs to launch kernels on
NVIDIA GPUs. Triton 3.6 builds one per kernel signature, later versions one for all; both build one
for the driver. They go to this process's cache folder under Triton's own keys. They are built from
Triton's own text and a list of types, and are not loaded here.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..channel import serve
from ..interpreter.interpret import driver_of
from ..one_line import one_line
from .assembly import resources

Signature = list[str]
_TYPE = re.compile(r"\*?k?[a-z][a-z0-9]{0,9}|\*?k?fp8[a-z0-9]{0,9}|constexpr")


def gpu_driver(arch: dict[str, Any]) -> SimpleNamespace:
    """Return a driver that describes a card of this architecture."""
    from triton.backends.compiler import GPUTarget

    number = int(arch["number"]) if arch["backend"] == "cuda" else arch["number"]
    return driver_of(GPUTarget(arch["backend"], number, arch["warp"]), {
        "max_shared_mem": arch["shared_per_block"], "warpSize": arch["warp"],
        "multiprocessor_count": arch["multiprocessors"], "max_num_regs": 65536})


class Inspector:
    def __init__(self, job: dict[str, Any]) -> None:
        import torch
        from triton.runtime import autotuner, errors, jit
        from triton.runtime.driver import driver

        from ..run.load_python import expect_unchanged, load

        self.arch = job["arch"]
        self.max_configs = job["max_configs"]
        self.device = torch.device("meta" if job["without_memory"] else "cpu")
        self.records: list[dict[str, Any]] = []
        self.known: dict[int, tuple[Any, dict[str, Any]]] = {}
        """By id: each compiled kernel, kept so that its id stays unique, and facts about it."""
        self.signatures: list[Signature] = []
        self.config = ""
        self.unlaunchable = errors.OutOfResources  # Triton raises it when a launch fails
        driver.set_active(gpu_driver(self.arch))
        self._original_run = jit.JITFunction.run
        jit.JITFunction.run = lambda kernel, *a, **k: self._compile(kernel, a, k)
        autotuner.Autotuner.run = lambda tuner, *a, **k: self._tune(tuner, a, k)
        cuda: Any = torch.cuda
        cuda.get_device_properties = lambda *_: SimpleNamespace(
            multi_processor_count=self.arch["multiprocessors"],
            shared_memory_per_block_optin=self.arch["shared_per_block"])
        expect_unchanged(job)
        _, self.function = load(job)

    def inspect(self, job: dict[str, Any]) -> dict[str, Any]:
        """Call the host function; return what its launches compiled to."""
        import torch

        from ..run.load_python import constant

        self.records = []
        arguments = [constant(t, self.device.type) if t["role"] == "scalar" else
                     torch.empty(t["shape"], dtype=getattr(torch, t["dtype"]), device=self.device)
                     for t in job["tensors"]]
        with self.device, contextlib.suppress(self.unlaunchable):
            self.function(*arguments)
            for record in self.records:  # the function caught a failing launch
                record["caught"] = record.pop("fails", False)
        return {"kernels": self.records, "signatures": self.signatures}

    def _tune(self, tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        left = list(tuner.prune_configs(kwargs))
        before = len(self.records)
        for _ in range(min(self.max_configs, len(left))):
            config = left.pop(0)
            self.config = str(config)
            try:
                tuner.fn.run(*args, **{**kwargs, **config.all_kwargs()})
            except self.unlaunchable:
                continue
        for record in self.records[before:]:
            record["configs_left"] = len(left)
            record.pop("fails", None)
        self.config = ""
        tuner.nargs = None

    def _compile(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        grid = self._grid(kernel, args, dict(kwargs))
        record = {"kernel": kernel.__name__, "arch": self.arch["name"], "config": self.config,
                  "grid": grid, "programs": None if grid is None else math.prod(grid)}
        report = io.StringIO()
        try:
            with contextlib.redirect_stdout(report):
                compiled = self._original_run(kernel, *args, **{**kwargs, "warmup": True})
        except Exception as error:
            self.records.append(record | {"error": one_line(error)[:400]})
            return
        key = id(compiled)
        if key not in self.known:
            self.known[key] = compiled, resources(compiled, report.getvalue())
            signature = signature_of(compiled)
            if signature is not None and signature not in self.signatures:
                self.signatures.append(signature)
        usage, most_shared = self.known[key][1], self.arch["shared_per_block"]
        self.records.append(record | usage)
        if usage["shared_bytes"] > most_shared or usage["threads"] > self.arch["threads_per_block"]:
            self.records[-1]["fails"] = True
            raise self.unlaunchable(usage["shared_bytes"], most_shared, "shared memory")

    def _grid(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
              ) -> list[int] | None:
        grid = kwargs.pop("grid", None)
        kwargs.pop("warmup", None)
        try:
            if callable(grid):
                binder = kernel.device_caches[0][-1]
                grid = grid(binder(*args, **kwargs)[0])
            return [int(size) for size in grid]
        except Exception:
            return None  # computing this grid needs a GPU


def signature_of(compiled: Any) -> Signature | None:
    """Return the types of a kernel's arguments; None on AMD, or if any is no plain type."""
    types = list(getattr(compiled.src, "signature", {}).values())
    if compiled.metadata.target.backend != "cuda" or getattr(
            compiled.metadata, "tensordesc_meta", None):
        return None
    return types if plain(types) else None


def plain(types: list[Any]) -> bool:
    return all(isinstance(name, str) and _TYPE.fullmatch(name) for name in types)


def stubs(signatures: list[Signature]) -> dict[str, Any]:
    """Build the missing C modules; `failed` in the answer says why some could not be built."""
    failed = []
    try:
        from triton.backends.nvidia import driver
        from triton.runtime import build

        build._load_module_from_path = lambda *_: None  # a GPU's driver may be missing here
        with_driver = {"library_dirs": driver.library_dirs(), "include_dirs": driver.include_dirs,
                       "libraries": driver.libraries}
        build.compile_module_from_src(src=Path(driver.dirname, "driver.c").read_text(),
                                      name="cuda_utils", **with_driver)
    except Exception as error:
        return {"failed": [one_line(error)]}
    for types in signatures if hasattr(driver, "make_launcher") else ():
        try:
            if not plain(types):
                raise ValueError("not a list of types")
            text = driver.make_launcher({}, dict(enumerate(types)), None)
            build.compile_module_from_src(src=text, name="__triton_launcher", **with_driver)
        except Exception as error:
            failed.append(one_line(error))
    return {"failed": failed}


def main(descriptor: int) -> None:
    inspector: Inspector | None = None

    def work(job: dict[str, Any]) -> dict[str, Any]:
        nonlocal inspector
        if job["op"] == "stubs":
            return stubs(job["signatures"])
        if job["op"] == "load":
            os.nice(job.get("nice", 0))
            inspector = Inspector(job)
            return {}
        assert inspector is not None
        return inspector.inspect(job)

    serve(descriptor, work)
