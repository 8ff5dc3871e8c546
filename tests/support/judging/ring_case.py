"""Small rings of slots for tests, in which inputs of LARGE elements count as large."""

from __future__ import annotations

from typing import Any

from harness.child.memory.slot_memory import GUARD_BYTES
from harness.child.oracle.arrays_numpy import NumpyArrays
from harness.child.oracle.ring import Ring
from harness.child.oracle.tape import Tape

SIDES = ("candidate", "incumbent")
KINDS = ["normal", "structured", "tied"]
BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4,
         "int8": 1, "uint8": 1, "float8_e4m3fn": 1}
OF_NUMPY = ("float64", "float32", "float16", "int64", "int32", "int8", "uint8")
LARGE = 1000
"""Inputs with at least this many elements count as large in these tests."""


def tensor(name: str, count: int, dtype: str = "float32", role: str = "input",
           **fields: Any) -> dict[str, Any]:
    return {"name": name, "role": role, "dtype": dtype, "stored": dtype, "shape": [count],
            "nbytes": count * BYTES[dtype], "low": None, "high": None, "weight": False, **fields}


def made(arrays: Any, tensors: list[dict[str, Any]], slots: int, seed: int = 3) -> Ring:
    end = GUARD_BYTES
    for each in tensors:
        each["offset"] = end
        end += (each["nbytes"] // GUARD_BYTES + 2) * GUARD_BYTES
    job = {"tensors": tensors, "slots": slots, "slot_bytes": end, "kinds": KINDS, "seed": seed,
           "sides": {side: [] for side in SIDES}}
    return Ring(arrays, job, {each["name"]: Tape(arrays, each, seed + index, KINDS)
                              for index, each in enumerate(tensors) if each["role"] != "output"})


def redraw(ring: Ring, count: int) -> None:
    ring.draw(count)
    for side in SIDES:
        ring.fill(side)


def words(ring: Ring, name: str, side: str = "candidate") -> list[list[int]]:
    [one] = [each for each in ring.sides[side].tensors if each["name"] == name]
    rows: list[list[int]] = ring.arrays.typed(ring.sides[side].rows(one), {
        1: "uint8", 2: "int16", 4: "int32", 8: "int64"}[BYTES[one["dtype"]]]).tolist()
    return rows


def numbers(arrays: Any, rows: list[list[float]]) -> Any:
    return arrays.np.array(rows) if isinstance(arrays, NumpyArrays) else \
        arrays.torch.tensor(rows, dtype=arrays.torch.float64, device=arrays.device)
