"""Measure the kernels of one benchmark run on an AMD card by rocprofv3.

rocprofv3 starts the command and writes a CSV file per process that launched kernels, with a line
per launch. Columns differ by version; the ones that are read have the same names since ROCm 6.2.
"""

from __future__ import annotations

import csv
import io
import math
import re
import shutil
from collections.abc import Mapping
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

PROGRAM = "rocprofv3"
INSTALLED = ("/opt/rocm/bin", "/opt/rocm-*/bin")
_NUMBER = re.compile(r"[0-9]{1,19}")
_DIMENSIONS = [(f"grid_size_{axis}", f"workgroup_size_{axis}") for axis in "xyz"]


def find_program() -> str:
    """Return the path of rocprofv3, "" if it is not installed."""
    folders = [str(folder) for pattern in INSTALLED
               for folder in sorted(Path("/").glob(pattern[1:]), reverse=True)]
    return shutil.which(PROGRAM) or shutil.which(PROGRAM, path=":".join(folders)) or ""


def parse(text: str) -> dict[str, KernelLaunches]:
    """Parse one process's kernel trace. Raises KernelTimeUnavailable for an invalid file."""
    kernels: dict[str, KernelLaunches] = {}
    try:
        lines = csv.reader(io.StringIO(text), strict=True)
        columns = [name.strip().casefold() for name in next(lines, [])]
        for line in filter(None, lines):
            row = dict(zip(columns, line, strict=True))
            if row.get("kind", "KERNEL_DISPATCH") == "KERNEL_DISPATCH":
                name = kernel_name(row["kernel_name"])
                launch = _launch(row)
                kernels[name] = kernels[name] + launch if name in kernels else launch
    except (csv.Error, KeyError, ValueError):
        raise KernelTimeUnavailable(f"{PROGRAM}'s output is malformed") from None
    return kernels


def _launch(row: Mapping[str, str]) -> KernelLaunches:
    """Return one launch; a grid is counted in threads. Raises KeyError, ValueError."""
    took_ns = _number(row["end_timestamp"]) - _number(row["start_timestamp"])
    if took_ns <= 0:
        raise KernelTimeUnavailable(f"{PROGRAM} has no time for a kernel")
    blocks = math.prod(max(1, -(-_number(row[grid]) // max(1, _number(row[group]))))
                       for grid, group in _DIMENSIONS)
    return KernelLaunches(launches=1, total_ns=took_ns, least_ns=took_ns, blocks=blocks)


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return int(text)


@dataclass(frozen=True)
class RocprofProfiler(Profiler):
    """Measures a command's kernels with rocprofv3; `program` is "" if it is not installed."""

    program: str
    fix = "install rocprofiler-sdk, or add the folder of rocprofv3 to PATH"
    files = ToolFiles(tool=PROGRAM, parse=parse,
                      result=re.compile(r"k\.[0-9]{1,10}_kernel_trace\.csv"),
                      other=re.compile(r"k\.[0-9]{1,10}_[a-z_]{1,40}\.csv"),
                      none="no process of the command launched a kernel and ended normally",
                      file_bytes=64 << 20, all_bytes=64 << 20)

    @property
    def missing(self) -> str:
        return "" if self.program else f"{PROGRAM} is neither in PATH nor in /opt/rocm/bin"

    def changes(self, copy: WorkingCopy, folder: Path) -> dict[str, Any]:
        if not self.program:
            raise KernelTimeUnavailable(self.missing)
        return {"wrapper": (self.program, "--kernel-trace", "--output-format", "csv",
                            "-d", str(folder), "-o", "k.%pid%", "--")}
