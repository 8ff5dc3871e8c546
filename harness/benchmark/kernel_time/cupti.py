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
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.benchmark.kernel_time import profile
from harness.benchmark.kernel_time.profile import (
    KernelLaunches,
    KernelProfile,
    KernelTimeUnavailable,
    T,
    ToolFiles,
)
from harness.benchmark.runs.workdir import WorkingCopy
from harness.compile.c_compiler import BUILD_LIMITS, compiler
from harness.errors import Cancelled, EnvironmentFault
from harness.formats import file_copy
from harness.formats.text import plain
from harness.isolation import guard
from harness.isolation.guard import Confine

SOURCE = Path(__file__).parent / "cupti.c"
FOLDER = "kernel-time"
MOST_LINES = 4100
_NUMBER = re.compile(r"[0-9]{1,19}")
_HEADER = re.compile(r"kopt-kernel-time\t1\t[0-9]{1,10}\t[01]")
FILES = ToolFiles(tool="CUPTI", result=re.compile(r"k\.[0-9]{1,10}\.[0-9]{1,3}"),
                  none="no process of the command loaded CUDA",
                  file_bytes=4 << 20, all_bytes=16 << 20)
_PACKAGES = ("lib*/python3*/*-packages/nvidia/*/lib", "lib",
             "lib*/python3*/*-packages/triton/backends/nvidia/lib/cupti")
_TOOLKITS = ("lib64", "lib", "extras/CUPTI/lib64")


@dataclass(frozen=True)
class CuptiProfiler:
    """Measures a command's kernels by the first of these libraries that works."""

    libraries: Sequence[str]
    tool: str = "CUPTI"
    fix: str = "install a C compiler, and nvidia-cuda-cupti or a CUDA toolkit"

    @property
    def missing(self) -> str:
        try:
            compiler()
        except EnvironmentFault as fault:
            return fault.what
        return "" if self.libraries else \
            "no libcupti.so beside the target's Python or in a CUDA toolkit"

    def observe(self, copy: WorkingCopy, work: Callable[[], T]) -> tuple[T, KernelProfile]:
        return run_observed(copy, self.libraries, work)


def build_library(folder: Path, output: Path, cancel: threading.Event | None = None) -> Path:
    """Compile the library, which writes `output`.*. Raises KernelTimeUnavailable, Cancelled."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "libkopt_kernel_time.so"
    outcome = guard.run(
        [compiler(), "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread",
         f"-DKOPT_KERNEL_TIME={_literal(output)}", "-o", str(out), str(SOURCE), "-ldl"], cwd=folder,
        env=guard.clean_env(home=folder), limits=BUILD_LIMITS,
        confine=Confine(writable=(str(folder),), cards=False), cancel=cancel)
    if cancel is not None and cancel.is_set():
        raise Cancelled("cancelled while building")
    if not outcome.ok:
        error = outcome.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise KernelTimeUnavailable("the library that uses CUPTI does not compile: "
                                    f"{plain(error, 200) or 'no error is printed'}")
    return out


def _literal(path: Path) -> str:
    """Return a path as C writes it."""
    kept = frozenset(b"/._-" + (string.ascii_letters + string.digits).encode())
    return '"' + "".join(chr(byte) if byte in kept else f"\\{byte:03o}"
                         for byte in os.fsencode(path)) + '"'


def cupti_libraries(python: str | None = None) -> list[str]:
    """Return the possible CUPTI libraries: of the running Python, then of CUDA toolkits."""
    program = Path(shutil.which(python or sys.executable) or sys.executable)
    roots = [program.parent.parent, program.resolve().parent.parent, Path("/usr/local"),
             Path("/usr")]
    toolkits = [Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda"),
                *sorted(Path("/usr/local").glob("cuda-*"), reverse=True)]
    folders = [(root, pattern) for pattern in _PACKAGES for root in roots]
    folders += [(root, pattern) for root in toolkits for pattern in _TOOLKITS]
    found = [str(path) for root, pattern in folders
             for path in sorted(root.glob(f"{pattern}/libcupti.so.1[0-9]*"), reverse=True)]
    return [path for path in dict.fromkeys(found) if ":" not in path]


def run_observed(copy: WorkingCopy, libraries: Iterable[str], work: Callable[[], T]) -> tuple[T,
             KernelProfile]:
    """Return the work's result and its kernels' times. Raises KernelTimeUnavailable, Cancelled."""
    folder = Path(tempfile.mkdtemp(prefix="kernel-time-", dir=copy.home))
    environment = copy.environment
    try:
        library = build_library(copy.folder / FOLDER, folder / "k", environment.cancel)
        copy.environment = replace(
            environment,
            env={**environment.env, "CUDA_INJECTION64_PATH": str(library),
                 "KOPT_CUPTI": ":".join(libraries)})
        done = work()
        return done, read_profile(folder, environment.cancel)
    finally:
        copy.environment = environment
        file_copy.remove(folder)


def read_profile(folder: Path, cancel: threading.Event | None = None) -> KernelProfile:
    """Return the kernels of all processes of a run. Raises KernelTimeUnavailable, Cancelled."""
    return profile.merged((parse(text) for text in FILES.texts(folder)), cancel)


def parse(text: str) -> dict[str, KernelLaunches]:
    """Parse one process's file. Raises KernelTimeUnavailable for an invalid file or a failure."""
    if text.count("\n") > MOST_LINES:
        raise KernelTimeUnavailable("CUPTI's output is too large")
    header, *lines = text.split("\n")
    found: dict[str, KernelLaunches] = {}
    for line in lines[:-2]:
        word, _, rest = line.partition("\t")
        if word == "why":
            raise KernelTimeUnavailable(plain(rest, 200) or "CUPTI states no reason")
        if word == "lost":
            raise KernelTimeUnavailable(f"CUPTI lost kernels: {plain(rest, 20)}")
        if word != "kernel":
            raise KernelTimeUnavailable("CUPTI's output is malformed")
        name, kernel = _kernel(rest)
        found[name] = found[name] + kernel if name in found else kernel
    if not _HEADER.fullmatch(header) or lines[-2:] != ["end", ""]:
        raise KernelTimeUnavailable(
            "CUPTI's output is incomplete: a process ended without its exit handlers")
    return found


def _kernel(rest: str) -> tuple[str, KernelLaunches]:
    parts = rest.split("\t", 4)
    if len(parts) != 5 or not all(_NUMBER.fullmatch(part) for part in parts[:4]):
        raise KernelTimeUnavailable("CUPTI's output is malformed")
    launches, total, least, blocks = map(int, parts[:4])
    if not 0 < launches * least <= total or blocks < launches:
        raise KernelTimeUnavailable("CUPTI's output contradicts itself")
    return profile.kernel_name(parts[4]), KernelLaunches(
        launches=launches, total_ns=total, least_ns=least, blocks=blocks)
