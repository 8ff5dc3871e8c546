"""A generated benchmark: its contract with kopt, and the manifest and record that freeze it."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from engine.manifest.schema import GpuSpec, Manifest, TargetSpec
from harness.benchmark.spec.command_target import BenchmarkMode, CheckColumn, CommandTarget, Metric
from harness.call_trace.weights import Weights
from harness.errors import Refused
from harness.formats import file_copy

NAME, CSV, RECORD = "kopt_harness.py", "kopt_harness.csv", "kopt_harness.json"
CHECK, METRIC, PASS = "check", "latency_us", "PASS"
LIMIT_S = {"correctness": 1800.0, "profile": 120.0, "benchmark": 900.0, "full-benchmark": 900.0}
"""The modes in the order in which they are checked, and the limit of each run, seconds."""
ITERATIONS = 5
"""Timed calls for each configuration while a harness is checked."""
MOST_BYTES = 256 << 10
_OUTSIDE = re.compile(r"(?:/|~/|\.\./)[\w.]")


@dataclass(frozen=True, kw_only=True)
class KernelToBenchmark:
    """A kernel whose project has no benchmark; `traced` tells how often each shape was called."""

    project: Path
    source: str
    """Its file, relative to the project."""
    entry: str = ""
    traced: Weights | None = None
    traced_file: str = ""
    device: str = "auto"
    language: str = ""

    @property
    def op(self) -> str:
        return self.entry or Path(self.source).stem

    @property
    def target(self) -> CommandTarget:
        """The command target that the harness measures."""
        return CommandTarget(
            op=self.op, command=command("full-benchmark"), csv=CSV, source=self.source,
            check=CheckColumn(column=CHECK, rule=f"== {PASS}"), metrics=(Metric(name=METRIC),),
            language=self.language, weights=self.traced, timeout_s=LIMIT_S["full-benchmark"])


class HarnessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a frozen harness, in the file RECORD beside it."""

    sha256: str
    source: str
    entry: str
    configurations: tuple[dict[str, str], ...]
    configurations_from: str
    """The trace's file, or "the project" where the author chose them."""
    checks: dict[str, str]
    """The result of each check, by the check's name."""
    review: str
    attempts: int
    created: str


def command(mode: str, iterations: int | None = None) -> str:
    """Return the command that runs a mode."""
    limit = f" --iterations {iterations}" if iterations else ""
    return f"python {NAME} --{mode}{limit}"


def benchmark_mode(mode: str) -> BenchmarkMode:
    """Return a benchmark mode that times only ITERATIONS calls of each configuration."""
    return BenchmarkMode(name="full" if mode == "full-benchmark" else "quick",
                         command=command(mode, ITERATIONS), csv=CSV)


def static_faults(text: str) -> list[str]:
    """Return the faults that show in a harness's text without running it."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [f"is not Python: {error}"]
    faults = [f"does not know --{name}" for name in (*LIMIT_S, "iterations")
              if not re.search(rf"--{name}|(['\"]){name}\1", text)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) \
                and _OUTSIDE.match(node.value):
            faults.append(f"line {node.lineno} names a path outside the work folder: "
                          f"{node.value[:60]!r}")
    return faults


def read(folder: Path) -> bytes:
    """Return a folder's harness. Raises Refused if it is missing, too large or no plain text."""
    path = folder / NAME
    try:
        with file_copy.open_plain(path) as file:
            data = file.read(MOST_BYTES + 1)
        data.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = "does not exist" if isinstance(error, FileNotFoundError) else \
            "is not a plain text file"
        raise Refused(why, where=NAME) from None
    if len(data) > MOST_BYTES:
        raise Refused(f"is larger than {MOST_BYTES >> 10} KiB", where=NAME)
    return data


def recorded(project: Path) -> HarnessRecord | None:
    """Return the record of a project's harness, None if there is no readable one."""
    try:
        return msgspec.json.decode((project / RECORD).read_bytes(), type=HarnessRecord)
    except (OSError, msgspec.DecodeError):
        return None


def freeze(kernel: KernelToBenchmark, harness: bytes, *, checks: dict[str, str], review: str,
           configurations: tuple[dict[str, str], ...], attempts: int) -> HarnessRecord:
    """Write the harness, read-only, and its record into the project; return the record."""
    path = kernel.project / NAME
    file_copy.replace_file(path, harness)
    path.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
    record = HarnessRecord(
        sha256=hashlib.sha256(harness).hexdigest(), source=kernel.source, entry=kernel.entry,
        configurations=configurations, configurations_from=kernel.traced_file or "the project",
        checks=checks, review=review, attempts=attempts,
        created=time.strftime("%Y-%m-%d %H:%M", time.gmtime()))
    text = msgspec.json.format(msgspec.json.encode(record), indent=2)
    file_copy.replace_file(kernel.project / RECORD, text + b"\n")
    return record


def manifest(kernel: KernelToBenchmark, pool: dict[str, Any], folder: Path) -> Manifest:
    """Return the manifest, for a file in `folder`, of a campaign judged by the harness."""
    return msgspec.convert({
        "project": os.path.relpath(kernel.project, folder),
        "target_op": kernel.op, "target_lang": kernel.language, "kernel_source": kernel.source,
        "target": msgspec.to_builtins(TargetSpec(
            kind="command", csv=CSV, check=f"{CHECK} == {PASS}", metrics=(METRIC,),
            weights=kernel.traced_file, timeout_s=LIMIT_S["full-benchmark"])),
        "benchmark_command": command("full-benchmark"), "quick_command": command("benchmark"),
        "representative_shapes": "all", "test_command": command("correctness"),
        "edit": (kernel.source,), "frozen": (NAME,), "pool": pool,
        "gpu": msgspec.to_builtins(GpuSpec(device=kernel.device)),
        "created": time.strftime("%Y-%m-%d %H:%M")}, Manifest)
