"""Compiles a target's Triton kernels without a GPU and reads what the assembler says of them.

Runs the host function on tensors that are never filled, with launches replaced by compilations:
what reaches a launch, argument types, alignments, constants and warps, is what a GPU would get.
Talks JSON lines over a socket. Needs torch and triton.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import socket
from types import SimpleNamespace
from typing import Any

from .report import one_line

os.environ["TRITON_ALWAYS_COMPILE"] = "1"  # a cached kernel comes without the assembler's report
os.environ["TRITON_DUMP_PTXAS_LOG"] = "1"

_USED = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_PTX_LOAD = re.compile(r"\bld\.global[\w:.]*?(?:\.v([248]))?\.[busf](\d+)\b")
_PTX_COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global[\w:.]* *\[[^\]]*\], *\[[^\]]*\], *"
                       r"(0x[0-9a-f]+|\d+)")
_GCN_LOAD = re.compile(r"\b(?:global|buffer|flat)_load_(dwordx[234]|dword|ushort|short|ubyte|b\d+)")
_GCN_BYTES = {"dwordx4": 16, "dwordx3": 12, "dwordx2": 8, "dword": 4, "ushort": 2, "short": 2,
              "ubyte": 1}
_MATRIX = (("tcgen05", r"tcgen05\.mma"), ("wgmma", r"wgmma\.mma_async"), ("mma", r"\bmma\.sync"),
           ("mfma", r"v_mfma"), ("wmma", r"v_wmma"))


class Compiler:
    """Stands in for the GPU driver: says what the architecture is, launches nothing."""

    def __init__(self, archs: list[dict[str, Any]]) -> None:
        from triton.backends.compiler import GPUTarget

        self.archs = archs
        self.targets = [GPUTarget(a["backend"], int(a["number"]) if a["backend"] == "cuda"
                                  else a["number"], a["warp"]) for a in archs]
        self.current = 0
        self.utils = SimpleNamespace(get_device_properties=self.properties)

    def get_current_target(self) -> Any:
        return self.targets[self.current]

    def get_current_device(self) -> int:
        return self.current

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        return None

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def properties(self, device: int = 0) -> dict[str, int]:
        arch = self.archs[self.current]
        return {"max_shared_mem": arch["shared_per_block"], "warpSize": arch["warp"],
                "multiprocessor_count": arch["multiprocessors"],
                "max_num_regs": arch["registers"]}


class Inspector:
    def __init__(self, job: dict[str, Any]) -> None:
        import torch
        from triton.runtime import autotuner, jit
        from triton.runtime.driver import driver

        from .load_python import import_file

        self.compiler = Compiler(job["archs"])
        self.max_configs = job["max_configs"]
        self.records: list[dict[str, Any]] = []
        self.known: dict[tuple[int, int], dict[str, Any]] = {}
        self.kept: list[Any] = []  # compiled kernels, so that no id of theirs is used again
        self.config = ""
        driver.set_active(self.compiler)
        self._plain = jit.JITFunction.run
        jit.JITFunction.run = lambda kernel, *a, **k: self._compile(kernel, a, k)
        autotuner.Autotuner.run = lambda tuner, *a, **k: self._tune(tuner, a, k)
        cuda: Any = torch.cuda
        cuda.get_device_properties = lambda *_: SimpleNamespace(
            multi_processor_count=self.compiler.properties()["multiprocessor_count"],
            shared_memory_per_block_optin=self.compiler.properties()["max_shared_mem"])
        with open(job["artifact"], "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != job["sha256"]:
                raise RuntimeError("the source is not the one that was to be compiled")
        self.function = getattr(import_file(job["artifact"], job["root"]), job["entry"])

    def inspect(self, job: dict[str, Any]) -> dict[str, Any]:
        """Call the host function once per architecture; returns what its launches compiled to."""
        import torch

        self.records = []
        arguments = [t["value"] if t["role"] == "scalar" else
                     torch.empty(t["shape"], dtype=getattr(torch, t["dtype"]))
                     for t in job["tensors"]]
        for index in range(len(self.compiler.targets)):
            self.compiler.current = index
            self.function(*arguments)
        return {"kernels": self.records}

    def _tune(self, tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        for config in tuner.prune_configs(kwargs)[: self.max_configs]:
            self.config = str(config)
            tuner.fn.run(*args, **{**kwargs, **config.all_kwargs()})
        self.config = ""
        tuner.nargs = None

    def _compile(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        arch = self.compiler.archs[self.compiler.current]["name"]
        record = {"kernel": kernel.__name__, "arch": arch, "config": self.config,
                  "programs": self._programs(kernel, args, dict(kwargs))}
        report = io.StringIO()
        try:
            with contextlib.redirect_stdout(report):
                compiled = self._plain(kernel, *args, **{**kwargs, "warmup": True})
        except Exception as error:
            self.records.append(record | {"error": one_line(error)[:400]})
            return
        key = (self.compiler.current, id(compiled))
        if key not in self.known:
            self.kept.append(compiled)
            self.known[key] = resources(compiled, report.getvalue())
        self.records.append(record | self.known[key])

    def _programs(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
        grid = kwargs.pop("grid", None)
        kwargs.pop("warmup", None)
        try:
            if callable(grid):
                binder = kernel.device_caches[self.compiler.current][-1]
                grid = grid(binder(*args, **kwargs)[0])
            count = 1
            for size in grid:
                count *= int(size)
            return count
        except Exception:
            return None  # a grid that needs a GPU to be known


def resources(compiled: Any, report: str) -> dict[str, Any]:
    """Read one compiled kernel: its metadata, the assembler's report, the text of the code."""
    metadata = compiled.metadata
    found: dict[str, Any] = {"shared_bytes": metadata.shared,
                             "threads": metadata.num_warps * metadata.target.warp_size}
    text = compiled.asm.get("ptx") or compiled.asm.get("amdgcn") or ""
    if "ptx" in compiled.asm:
        used = _USED.findall(report)
        spills = _SPILLS.findall(report)
        loads = [int(v or 1) * int(bits) // 8 for v, bits in _PTX_LOAD.findall(text)]
        loads += [int(size, 0) for size in _PTX_COPY.findall(text)]
        loads += [128] if "cp.async.bulk" in text else []
        found |= {"registers": max(map(int, used), default=None),
                  "spills": sum(int(a) + int(b) for a, b in spills) if spills else None}
    else:
        spilled = [number(text, name) for name in (".vgpr_spill_count:", ".sgpr_spill_count:")]
        loads = [_GCN_BYTES.get(kind, int(kind[1:]) // 8 if kind[1:].isdigit() else 4)
                 for kind in _GCN_LOAD.findall(text)]
        found |= {"registers": number(text, ".vgpr_count:"), "waves": number(text, "Occupancy:"),
                  "scalar_registers": number(text, ".sgpr_count:"),
                  "spills": None if None in spilled else sum(s or 0 for s in spilled) * 4}
    found["load_bytes"] = max(loads, default=None)
    found["matrix"] = next((name for name, pattern in _MATRIX if re.search(pattern, text)), "")
    return found


def number(text: str, label: str) -> int | None:
    match = re.search(re.escape(label) + r"\s*(\d+)", text)
    return int(match[1]) if match else None


def main(descriptor: int) -> None:
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    inspector: Inspector | None = None
    with channel, channel.makefile("rwb") as stream:
        for line in stream:
            job = json.loads(line)
            try:
                if job["op"] == "load":
                    inspector = Inspector(job)
                    answer: dict[str, Any] = {}
                else:
                    assert inspector is not None
                    answer = inspector.inspect(job)
            except BaseException as error:
                answer = {"error": one_line(error), "kind": type(error).__name__}
            stream.write(json.dumps(answer).encode() + b"\n")
            stream.flush()

