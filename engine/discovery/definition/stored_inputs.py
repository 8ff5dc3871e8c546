"""Copies the index tensors of workloads from a data set's safetensors files into the project.

Their contents have a structure that no random numbers have: offsets that rise, pages that exist.
Floating-point tensors of a workload are drawn at random, as everywhere in kopt.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.discovery.definition import bench_schema
from engine.discovery.definition.bench_schema import Definition, Workload
from harness.errors import InputError
from harness.formats import safetensors
from harness.formats.expression import whole

POINTER = b"version https://git-lfs"
HEADER = 8
"""Bytes of the header's length, which a file begins with."""


def names(definition: Definition, workload: Workload) -> tuple[str, ...]:
    """Return the inputs whose values are copied: no floating-point ones."""
    return tuple(name for name, source in workload.inputs.items()
                 if source.type == "safetensors" and name in definition.inputs
                 and "float" not in definition.inputs[name].dtype)


def copy(definition: Definition, workload: Workload, workloads: Path,
         shapes: Mapping[str, Sequence[int | str]]) -> bytes:
    """Return a safetensors file with a workload's index tensors. Raises InputError.

    `shapes` are the inputs' shapes, in the names of the workload's axes.
    """
    tensors: dict[str, tuple[str, Sequence[int], bytes]] = {}
    for name in names(definition, workload):
        source = workload.inputs[name]
        path = bench_schema.find_file(workloads, source.path)
        if path is None:
            raise InputError(f"the values of {name} are not here: {source.path}",
                             where=f"workload {workload.uuid}",
                             fix="put the file where the data set has it (its folder `blob`)")
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
