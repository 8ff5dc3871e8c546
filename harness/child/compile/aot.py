"""Compiles a target's Triton kernels without a GPU and reads the assembler's report.

Runs the host function on uninitialised tensors, with each launch replaced by a compilation.
Argument types, alignments, constants and warps are those that a GPU would get, and so is Triton's
cache key. `stubs` builds the C modules that a launch needs and loads no project code. Talks JSON
lines over a socket. Needs torch and triton.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import socket
from types import SimpleNamespace
from typing import Any

from ..one_line import one_line
from .assembly import resources
from .stubs import Signature, signature_of, stubs


class Compiler:
    """Replaces the GPU driver: describes one device of an architecture, launches nothing."""

    def __init__(self, arch: dict[str, Any]) -> None:
        from triton.backends.compiler import GPUTarget

        self.arch = arch
        self.target = GPUTarget(arch["backend"], int(arch["number"]) if arch["backend"] == "cuda"
                                else arch["number"], arch["warp"])
        self.utils = SimpleNamespace(get_device_properties=self.properties)

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        return None

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def properties(self, device: int = 0) -> dict[str, int]:
        return {"max_shared_mem": self.arch["shared_per_block"], "warpSize": self.arch["warp"],
                "multiprocessor_count": self.arch["multiprocessors"], "max_num_regs": 65536}


class Inspector:
    def __init__(self, job: dict[str, Any]) -> None:
        import torch
        from triton.runtime import autotuner, errors, jit
        from triton.runtime.driver import driver

        from ..run.load_python import import_file

        self.arch = job["arch"]
        self.max_configs = job["max_configs"]
        self.records: list[dict[str, Any]] = []
        self.known: dict[int, dict[str, Any]] = {}
        self.signatures: list[Signature] = []
        self.kept: list[Any] = []  # compiled kernels; alive, so that their ids stay unique
        self.config = ""
        self.unlaunchable = errors.OutOfResources  # Triton raises it when a launch fails
        driver.set_active(Compiler(self.arch))
        self._plain = jit.JITFunction.run
        jit.JITFunction.run = lambda kernel, *a, **k: self._compile(kernel, a, k)
        autotuner.Autotuner.run = lambda tuner, *a, **k: self._tune(tuner, a, k)
        cuda: Any = torch.cuda
        cuda.get_device_properties = lambda *_: SimpleNamespace(
            multi_processor_count=self.arch["multiprocessors"],
            shared_memory_per_block_optin=self.arch["shared_per_block"])
        with open(job["artifact"], "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != job["sha256"]:
                raise RuntimeError("the source file changed after it was hashed")
        self.function = getattr(import_file(job["artifact"], job["root"]), job["entry"])

    def inspect(self, job: dict[str, Any]) -> dict[str, Any]:
        """Call the host function; return what its launches compiled to."""
        import torch

        self.records = []
        arguments = [t["value"] if t["role"] == "scalar" else
                     torch.empty(t["shape"], dtype=getattr(torch, t["dtype"]))
                     for t in job["tensors"]]
        with contextlib.suppress(self.unlaunchable):
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
                compiled = self._plain(kernel, *args, **{**kwargs, "warmup": True})
        except Exception as error:
            self.records.append(record | {"error": one_line(error)[:400]})
            return
        key = id(compiled)
        if key not in self.known:
            self.kept.append(compiled)
            self.known[key] = resources(compiled, report.getvalue())
            signature = signature_of(compiled)
            if signature is not None and signature not in self.signatures:
                self.signatures.append(signature)
        usage, most_shared = self.known[key], self.arch["shared_per_block"]
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


def main(descriptor: int) -> None:
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    inspector: Inspector | None = None
    with channel, channel.makefile("rwb") as stream:
        for line in stream:
            job = json.loads(line)
            try:
                if job["op"] == "stubs":
                    answer: dict[str, Any] = stubs(job["signatures"])
                elif job["op"] == "load":
                    os.nice(job.get("nice", 0))
                    inspector = Inspector(job)
                    answer = {}
                else:
                    assert inspector is not None
                    answer = inspector.inspect(job)
            except BaseException as error:
                answer = {"error": one_line(error), "kind": type(error).__name__}
            stream.write(json.dumps(answer).encode() + b"\n")
            stream.flush()

