"""Measure the kernels of one benchmark run on an NVIDIA card by CUPTI's clock.

CUDA's driver loads a small library (cupti.c) into every process of the command. It writes a file
per process, complete only after a normal exit.
"""

from __future__ import annotations

import os
import re
import shutil
import string
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.benchmark.kernel_time.profile import (
    KernelLaunches,
    KernelTimeUnavailable,
    Profiler,
    ToolFiles,
    kernel_name,
)
from harness.benchmark.runs.workdir import WorkingCopy
from harness.compile.c_compiler import BuildError, compiler, run_compiler
from harness.errors import EnvironmentFault
from harness.formats.text import plain

SOURCE = Path(__file__).parent / "cupti.c"
FOLDER = "kernel-time"
MOST_LINES = 4100
_NUMBER = re.compile(r"[0-9]{1,19}")
_HEADER = re.compile(r"kopt-kernel-time\t1\t[0-9]{1,10}\t[01]")
_PACKAGES = ("lib*/python3*/*-packages/nvidia/*/lib", "lib",
             "lib*/python3*/*-packages/triton/backends/nvidia/lib/cupti")
_TOOLKITS = ("lib64", "lib", "extras/CUPTI/lib64")


def build_library(folder: Path, output: Path, cancel: threading.Event | None) -> Path:
    """Compile the library, which writes `output`.*. Raises KernelTimeUnavailable, Cancelled."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "libkopt_kernel_time.so"
    argv = [compiler(), "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread",
            f"-DKOPT_KERNEL_TIME={_literal(output)}", "-o", str(out), str(SOURCE), "-ldl"]
    try:
        run_compiler(argv, folder, folder, cancel=cancel, name="kernel-time")
    except BuildError as error:
        raise KernelTimeUnavailable(
            f"the library that uses CUPTI does not compile: {error.what}") from None
    return out


def _literal(path: Path) -> str:
    """Return a path as a C string literal."""
    plain_bytes = frozenset(b"/._-" + (string.ascii_letters + string.digits).encode())
    return '"' + "".join(chr(byte) if byte in plain_bytes else f"\\{byte:03o}"
                         for byte in os.fsencode(path)) + '"'


def cupti_libraries(python: str | None = None) -> list[str]:
    """Return the possible CUPTI libraries: those beside a Python, then those of CUDA toolkits."""
    program = Path(shutil.which(python or sys.executable) or sys.executable)
    roots = [program.parent.parent, program.resolve().parent.parent, Path("/usr/local"),
             Path("/usr")]
    toolkits = [Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda"),
                *sorted(Path("/usr/local").glob("cuda-*"), reverse=True)]
    folders = [(root, pattern) for pattern in _PACKAGES for root in roots]
    folders += [(root, pattern) for root in toolkits for pattern in _TOOLKITS]
    paths = [str(path) for root, pattern in folders
             for path in sorted(root.glob(f"{pattern}/libcupti.so.1[0-9]*"), reverse=True)]
    return [path for path in dict.fromkeys(paths) if ":" not in path]


def parse(text: str) -> dict[str, KernelLaunches]:
    """Parse one process's file. Raises KernelTimeUnavailable for an invalid file or a failure."""
    if text.count("\n") > MOST_LINES:
        raise KernelTimeUnavailable("CUPTI's output is too large")
    header, *lines = text.split("\n")
    kernels: dict[str, KernelLaunches] = {}
    for line in lines[:-2]:
        word, _, rest = line.partition("\t")
        if word == "why":
            raise KernelTimeUnavailable(plain(rest, 200) or "CUPTI states no reason")
        if word == "lost":
            raise KernelTimeUnavailable(f"CUPTI lost kernels: {plain(rest, 20)}")
        if word != "kernel":
            raise KernelTimeUnavailable("CUPTI's output is malformed")
        name, kernel = _kernel(rest)
        kernels[name] = kernels[name] + kernel if name in kernels else kernel
    if not _HEADER.fullmatch(header) or lines[-2:] != ["end", ""]:
        raise KernelTimeUnavailable(
            "CUPTI's output is incomplete: a process ended without its exit handlers")
    return kernels


def _kernel(rest: str) -> tuple[str, KernelLaunches]:
    parts = rest.split("\t", 4)
    if len(parts) != 5 or not all(_NUMBER.fullmatch(part) for part in parts[:4]):
        raise KernelTimeUnavailable("CUPTI's output is malformed")
    launches, total, least, blocks = map(int, parts[:4])
    if not 0 < launches * least <= total or blocks < launches:
        raise KernelTimeUnavailable("CUPTI's output contradicts itself")
    return kernel_name(parts[4]), KernelLaunches(
        launches=launches, total_ns=total, least_ns=least, blocks=blocks)


@dataclass(frozen=True)
class CuptiProfiler(Profiler):
    """Measures a command's kernels by the first of these libraries that works."""

    libraries: Sequence[str]
    fix = "install a C compiler, and nvidia-cuda-cupti or a CUDA toolkit"
    files = ToolFiles(tool="CUPTI", parse=parse, none="no process of the command loaded CUDA",
                      result=re.compile(r"k\.[0-9]{1,10}\.[0-9]{1,3}"),
                      file_bytes=4 << 20, all_bytes=16 << 20)

    @property
    def missing(self) -> str:
        try:
            compiler()
        except EnvironmentFault as fault:
            return fault.what
        return "" if self.libraries else \
            "no libcupti.so beside the target's Python or in a CUDA toolkit"

    def changes(self, copy: WorkingCopy, folder: Path) -> dict[str, Any]:
        environment = copy.environment
        library = build_library(copy.folder / FOLDER, folder / "k", environment.cancel)
        return {"env": {**environment.env, "CUDA_INJECTION64_PATH": str(library),
                        "KOPT_CUPTI": ":".join(self.libraries)}}
