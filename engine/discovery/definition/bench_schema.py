"""The JSON documents of flashinfer-bench: Definition, Workload, Solution and Trace.

Fields that kopt does not use are not read. Older data sets lack some fields; they have defaults.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from harness.errors import InputError

T = TypeVar("T")


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["const", "var"]
    value: int | None = None


class BenchTensor(msgspec.Struct, frozen=True, kw_only=True):
    """An input or output; a shape of None is a Python scalar."""

    dtype: str
    shape: tuple[str, ...] | None


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    axes: dict[str, Axis]
    inputs: dict[str, BenchTensor]
    outputs: dict[str, BenchTensor]
    reference: str
    op_type: str = ""
    description: str | None = None
    constraints: tuple[str, ...] | None = None

    @property
    def constants(self) -> dict[str, int]:
        return {name: axis.value for name, axis in self.axes.items() if axis.value is not None}


class InputSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an input's values come from; `path` and `tensor_key` locate them in safetensors."""

    type: Literal["random", "scalar", "safetensors"]
    value: bool | int | float | None = None
    path: str = ""
    tensor_key: str = ""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    axes: dict[str, int]
    inputs: dict[str, InputSource]
    uuid: str


class BenchSource(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    content: str


class BuildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`entry_point` is FILE::FUNCTION; `destination_passing_style`: outputs are arguments."""

    language: str
    entry_point: str
    target_hardware: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    destination_passing_style: bool | None = None
    binding: str | None = None


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    definition: str
    spec: BuildSpec
    sources: tuple[BenchSource, ...]
    author: str = ""
    description: str | None = None


class BenchCorrectness(msgspec.Struct, frozen=True, kw_only=True):
    max_relative_error: float
    max_absolute_error: float


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    latency_ms: float
    reference_latency_ms: float
    speedup_factor: float


class BenchEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    hardware: str
    libs: dict[str, str]


class BenchEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run; `correctness` and `performance` are set if the status is PASSED."""

    status: str
    environment: BenchEnvironment
    timestamp: str
    log: str = ""
    correctness: BenchCorrectness | None = None
    performance: Performance | None = None


class BenchTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A workload; if `solution` is set, also its result on it."""

    definition: str
    workload: Workload
    solution: str | None = None
    evaluation: BenchEvaluation | None = None


def read(path: Path, kind: type[T]) -> T:
    """Read one JSON document. Raises InputError."""
    return _decode(_content(path), kind, str(path))


def read_workloads(path: Path, definition: str) -> tuple[Workload, ...]:
    """Return the different workloads of a definition in a file of traces. Raises InputError."""
    workloads: dict[str, Workload] = {}
    for number, line in enumerate(_content(path).splitlines(), 1):
        if line.strip():
            trace = _decode(line, BenchTrace, f"{path}:{number}")
            if trace.definition == definition:
                workloads.setdefault(trace.workload.uuid, trace.workload)
    if not workloads:
        raise InputError(f"the file has no workload of {definition}", where=str(path))
    return tuple(workloads.values())


def find_workloads(definition: Path, name: str) -> Path | None:
    """Return the file of workloads, below the definition's folder or the data set's `workloads`."""
    data_sets = [up.parent for up in definition.resolve().parents if up.name == "definitions"]
    for folder in (definition.parent, *(data_set / "workloads" for data_set in data_sets)):
        files = [path for path in folder.rglob(f"{name}*.jsonl")
                 if path.name.partition(".")[0] == name]
        if files:
            return min(files)
    return None


def find_file(workloads: Path, path: str) -> Path | None:
    """Return the file that a workload names, relative to a folder above the workloads."""
    return next((up / path for up in workloads.resolve().parents if (up / path).is_file()), None)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the file: {error.strerror}", where=str(path)) from None


def _decode(text: bytes, kind: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not a {kind.__name__} of flashinfer-bench: {error}",
                         where=where) from None
