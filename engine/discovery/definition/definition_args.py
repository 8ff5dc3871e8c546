"""The arguments of a definition: shapes from its axes, values from its workloads."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.discovery.definition import bench_schema
from engine.discovery.definition.bench_schema import BenchTensor, Definition, InputSource, Workload
from harness.errors import InputError
from harness.formats import expression, safetensors
from harness.formats.expression import whole
from harness.formats.text import plain
from harness.tasks.target import DTYPE_BYTES, Arg

RANDOM = {"int8": (-128.0, 128.0), "int16": (-1024.0, 1024.0), "int32": (-1024.0, 1024.0),
          "int64": (-1024.0, 1024.0), "float8_e4m3fn": (-2.0, 2.0), "float8_e5m2": (-2.0, 2.0)}
"""Bounds of flashinfer-bench's random inputs; other floats are normally distributed."""


@dataclass(frozen=True, kw_only=True)
class Dims:
    """The axes: values of constant ones, names of variable ones, expressions for derived ones."""

    constants: Mapping[str, int]
    variable: tuple[str, ...]
    derived: Mapping[str, str]

    def shape(self, spec: BenchTensor) -> tuple[int | str, ...]:
        return tuple(self.constants.get(axis, self.derived.get(axis, axis))
                     for axis in spec.shape or ())


def dims(definition: Definition) -> tuple[Dims, list[str]]:
    """Return the axes, and a line on each constraint; one like `axis == ...` derives that axis."""
    derived: dict[str, str] = {}
    lines = []
    variable = [name for name, axis in definition.axes.items() if axis.type == "var"]
    for text in definition.constraints or ():
        name, equals, rest = (part.strip() for part in text.partition("=="))
        if equals and name in variable and name not in derived and _is_over(
                rest, set(definition.axes) - {name, *derived}):
            derived[name] = _numbered(rest, definition.constants)
            lines.append(f"{name} = {derived[name]} (a constraint)")
        else:
            lines.append(f"constraint {plain(text, 100)}: the workloads meet it; kopt does not "
                         "check it on other shapes")
    if undefined := [axis for spec in (*definition.inputs.values(), *definition.outputs.values())
                     for axis in spec.shape or () if axis not in definition.axes]:
        raise InputError(f"the axis {undefined[0]!r} is not defined", where=definition.name)
    return Dims(constants=definition.constants, derived=derived, variable=tuple(
        name for name in variable if name not in derived)), lines


def make(definition: Definition, dims: Dims, workloads: Sequence[Workload],
         scalars: Mapping[str, object],
         ) -> tuple[tuple[Arg, ...], tuple[Workload, ...], list[str]]:
    """Return the inputs as arguments, the workloads with their scalars' values, and notes.

    A scalar has the value in `scalars`, else the most common one. Raises InputError.
    """
    args, notes, usable = [], list[str](), list(workloads)
    for name, spec in definition.inputs.items():
        _check_dtype(definition, name, spec)
        sources = [each.inputs.get(name, InputSource(type="random")) for each in workloads]
        if name in scalars or any(source.type == "scalar" for source in sources):
            value = scalars.get(name) if name in scalars else Counter(
                source.value for source in sources).most_common(1)[0][0]
            same = [each for each in usable if name in scalars or (
                name in each.inputs and each.inputs[name].value == value)]
            if len(same) < len(usable):
                notes.append(f"{name} = {value}: {len(usable) - len(same)} workloads with another "
                             f"value are left out (--scalar {name}=VALUE chooses one)")
            usable = same
            args.append(_scalar(definition, name, spec, value))
        elif spec.shape is None:
            raise InputError(f"the scalar {name} has no value",
                             where=definition.name, fix=f"--scalar {name}=VALUE")
        else:
            low, high = RANDOM.get(spec.dtype, (None, None))
            is_stored = any(name in input_names(definition, each) for each in workloads)
            args.append(Arg(name=name, dtype=spec.dtype, shape=dims.shape(spec),
                            low=None if is_stored else low, high=None if is_stored else high))
    if not usable:
        raise InputError("no workload has the most common value of every scalar",
                         where=definition.name, fix="--scalar NAME=VALUE sets one for all")
    return tuple(args), tuple(usable), notes


def outputs(definition: Definition, dims: Dims) -> tuple[Arg, ...]:
    """Return the outputs as arguments. Raises InputError for a Python scalar."""
    for name, spec in definition.outputs.items():
        _check_dtype(definition, name, spec)
        if spec.shape is None:
            raise InputError(f"the output {name} is a Python scalar", where=definition.name,
                             fix="give it the shape [] in the definition, and return a tensor")
    return tuple(Arg(name=name, dtype=spec.dtype, shape=dims.shape(spec), role="output")
                 for name, spec in definition.outputs.items())


def _scalar(definition: Definition, name: str, spec: BenchTensor, value: object) -> Arg:
    if isinstance(value, bool):
        return Arg(name=name, dtype="bool", literal=value)
    if not isinstance(value, int | float):
        raise InputError(f"the scalar {name} is {value!r}, not a number", where=definition.name,
                         fix=f"--scalar {name}=VALUE")
    return Arg(name=name, dtype=spec.dtype, value=value)


def _check_dtype(definition: Definition, name: str, spec: BenchTensor) -> None:
    if spec.dtype not in DTYPE_BYTES:
        raise InputError(f"kopt has no tensors of {spec.dtype}: {name}", where=definition.name,
                         fix="pack two values in an int8 in the definition, and unpack them in "
                         "its reference")


def _is_over(text: str, axes: set[str]) -> bool:
    """Return whether a text is arithmetic on these axes."""
    try:
        return bool(text) and expression.names_in(expression.parse(text)) <= axes
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False


def _numbered(text: str, constants: Mapping[str, int]) -> str:
    """Return an expression with the values of constant axes in place of their names."""
    for name in expression.names_in(expression.parse(text)) & constants.keys():
        text = re.sub(rf"\b{re.escape(name)}\b", str(constants[name]), text)
    return text


POINTER = b"version https://git-lfs"
HEADER = 8
"""Bytes at the beginning of a safetensors file that hold the length of its header."""


def input_names(definition: Definition, workload: Workload) -> tuple[str, ...]:
    """Return the inputs whose values are copied: integers in safetensors files."""
    return tuple(name for name, source in workload.inputs.items()
                 if source.type == "safetensors" and name in definition.inputs
                 and "float" not in definition.inputs[name].dtype)


def copy_input(definition: Definition, workload: Workload, workloads: Path,
               shapes: Mapping[str, Sequence[int | str]]) -> bytes:
    """Return a safetensors file with a workload's index tensors. Raises InputError.

    Index tensors have a structure that random numbers lack: offsets that rise, pages that exist.
    Floating-point tensors are drawn at random, as everywhere in kopt. `shapes` are the inputs'
    shapes in the names of the workload's axes.
    """
    tensors: dict[str, tuple[str, Sequence[int], bytes]] = {}
    for name in input_names(definition, workload):
        source = workload.inputs[name]
        path = bench_schema.find_file(workloads, source.path)
        if path is None:
            raise InputError(f"the file with the values of {name} is missing: {source.path}",
                             where=f"workload {workload.uuid}",
                             fix="put it where the data set has it (in its folder `blob`)")
        entry, values = _tensor(path, source.tensor_key)
        shape = [whole(dim, workload.axes) for dim in shapes[name]]
        if entry["dtype"] != safetensors.CODES.get(definition.inputs[name].dtype) \
                or entry["shape"] != shape:
            raise InputError(f"{name} is {entry['dtype']} {entry['shape']}, the definition says "
                             f"{definition.inputs[name].dtype} {shape}", where=str(path))
        tensors[name] = str(entry["dtype"]), shape, values
    return safetensors.pack(tensors)


def _tensor(path: Path, key: str) -> tuple[dict[str, object], bytes]:
    data = path.read_bytes()
    if data.startswith(POINTER):
        raise InputError("the file is a Git LFS pointer", where=str(path), fix="git lfs pull")
    try:
        begin = HEADER + struct.unpack("<Q", data[:HEADER])[0]
        entry = json.loads(data[HEADER:begin])[key]
        first, end = entry["data_offsets"]
        return {"dtype": entry["dtype"], "shape": entry["shape"]}, data[begin + first:begin + end]
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise InputError(f"no tensor {key!r} can be read: {error!r}", where=str(path)) from None
