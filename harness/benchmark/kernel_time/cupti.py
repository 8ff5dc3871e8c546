"""Measure the kernels of one benchmark run on an NVIDIA card by CUPTI's clock.

CUDA's driver loads a small library (cupti.c) into every process of the command. It writes a file
per process, complete only after a normal exit. The candidate could forge it, as it can its CSV: it
is read within limits.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import string
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from harness.benchmark.runs.workdir import WorkingCopy
from harness.compile.c_compiler import BUILD_LIMITS, compiler
from harness.errors import Cancelled, KoptError
from harness.formats import file_copy
from harness.formats.text import plain
from harness.isolation import guard
from harness.isolation.guard import Confine
from harness.verdict import Evidence, KernelShare

T = TypeVar("T")
SOURCE = Path(__file__).parent / "cupti.c"
FOLDER = "kernel-time"
LIMITS = {"files": 512, "bytes": 4 << 20, "all": 16 << 20, "lines": 4100, "names": 4096,
          "name": 300}
"""Limits of the files that a run leaves; a program with more processes is not measured."""
MOST_KERNELS, SHOWN_KERNELS = 8, 3
"""Kernels that a verdict lists, and that its evidence names."""
_NUMBER = re.compile(r"[0-9]{1,19}")
_HEADER = re.compile(r"kopt-kernel-time\t1\t[0-9]{1,10}\t[01]")
_FILE = re.compile(r"k\.[0-9]{1,10}\.[0-9]{1,3}")
_PACKAGES = ("lib*/python3*/*-packages/nvidia/*/lib", "lib",
             "lib*/python3*/*-packages/triton/backends/nvidia/lib/cupti")
_TOOLKITS = ("lib64", "lib", "extras/CUPTI/lib64")


class KernelTimeUnavailable(KoptError):
    """The kernels of a run could not be measured; the text says why."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class KernelLaunches:
    """All launches of the kernels of one name; `blocks` is their sum."""

    launches: int
    total_ns: int
    least_ns: int
    blocks: int

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.launches

    def __add__(self, other: KernelLaunches) -> KernelLaunches:
        return KernelLaunches(launches=self.launches + other.launches,
                      total_ns=self.total_ns + other.total_ns,
                      least_ns=min(self.least_ns, other.least_ns),
                      blocks=self.blocks + other.blocks)


KernelProfile = Mapping[str, KernelLaunches]


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
    found: dict[str, KernelLaunches] = {}
    for text in _texts(folder):
        if cancel is not None and cancel.is_set():
            raise Cancelled("cancelled while kernel time was read")
        for name, kernel in parse(text).items():
            found[name] = found[name] + kernel if name in found else kernel
            if len(found) > LIMITS["names"]:
                raise KernelTimeUnavailable("it has too many different kernels")
    if not found:
        raise KernelTimeUnavailable("no kernel was launched")
    return found


def _texts(folder: Path) -> Iterator[str]:
    """Yield the texts of a folder's files; no link is followed."""
    try:
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise KernelTimeUnavailable(f"CUPTI's files are gone: {error.strerror}") from None
    try:
        left = LIMITS["all"]
        for name in _names(inside):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                                 dir_fd=inside)
            with open(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise KernelTimeUnavailable("CUPTI's output is no plain file")
                data = file.read(min(LIMITS["bytes"], left) + 1)
            left -= len(data)
            if len(data) > LIMITS["bytes"] or left < 0:
                raise KernelTimeUnavailable("CUPTI's output is too large")
            yield data.decode(errors="replace")
    except OSError as error:
        raise KernelTimeUnavailable(f"CUPTI's files cannot be read: {error.strerror}") from None
    finally:
        os.close(inside)


def _names(inside: int) -> list[str]:
    with os.scandir(inside) as entries:
        names = [entry.name for entry, _ in zip(entries, range(LIMITS["files"] + 1), strict=False)]
    if not names:
        raise KernelTimeUnavailable("no process of the command loaded CUDA")
    if len(names) > LIMITS["files"]:
        raise KernelTimeUnavailable("too many processes")
    if not all(map(_FILE.fullmatch, names)):
        raise KernelTimeUnavailable("CUPTI's folder holds other files")
    return sorted(names)


def parse(text: str) -> dict[str, KernelLaunches]:
    """Parse one process's file. Raises KernelTimeUnavailable for an invalid file or a failure."""
    if text.count("\n") > LIMITS["lines"]:
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
    name = " ".join(plain(parts[4], LIMITS["name"]).split())
    return name, KernelLaunches(launches=launches, total_ns=total, least_ns=least, blocks=blocks)


def kernel_shares(profile: KernelProfile) -> tuple[KernelShare, ...]:
    """Return the kernels that take the most of a run's GPU time, the longest first."""
    whole_ns = sum(kernel.total_ns for kernel in profile.values())
    ranked = sorted(profile.items(), key=lambda item: (-item[1].total_ns, item[0]))
    return tuple(KernelShare(name=name, launches=kernel.launches, mean_us=kernel.mean_ns / 1e3,
                             share=kernel.total_ns / whole_ns)
                 for name, kernel in ranked[:MOST_KERNELS])


def trace_evidence(kernels: Sequence[KernelShare]) -> Evidence:
    """Return the longest kernels in words."""
    parts = [f"{kernel.name or 'unnamed kernels'} {kernel.share:.0%} ({kernel.launches} launches "
             f"of {kernel.mean_us:.4g} us)" for kernel in kernels[:SHOWN_KERNELS]]
    return Evidence(kind="trace", detail=f"GPU time of a run goes to {', '.join(parts)}, by CUPTI")
