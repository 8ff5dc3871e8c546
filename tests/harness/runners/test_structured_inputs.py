"""Guards inputs of integers that are drawn with a structure, or that are recorded."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from harness.child.oracle.arrays_numpy import NumpyArrays
from harness.child.oracle.inputs import draw
from harness.child.oracle.tape import Tape

KINDS = ["normal", "wide", "constant", "structured"]


@pytest.fixture(params=["numpy", "torch"])
def arrays(request: pytest.FixtureRequest) -> Any:
    if request.param == "numpy":
        return NumpyArrays()
    pytest.importorskip("torch")
    from harness.child.oracle.arrays_torch import TorchArrays

    return TorchArrays("cpu")


def tensor(**fields: Any) -> dict[str, Any]:
    return {"name": "index", "role": "input", "dtype": "int32", "shape": [40], "low": 0,
            "high": 60, "weight": False, "config_class": "small", **fields}


def fits(values: list[int], structure: str) -> bool:
    ascends = all(left <= right for left, right in pairwise(values))
    differ = len(set(values)) == len(values)
    return 0 <= min(values) <= max(values) < 60 and {
        "ascending": ascends, "increasing": ascends and differ, "distinct": differ,
        "offsets": ascends and values[0] == 0 and values[-1] == 59}[structure]


@pytest.mark.parametrize("structure", ["ascending", "increasing", "distinct", "offsets"])
def test_drawn_values_and_those_of_timed_calls_have_the_declared_structure(
        arrays: Any, structure: str) -> None:
    of = tensor(structure=structure)
    drawn = [[int(value) for value in draw(arrays, of, seed, kind)]
             for seed in range(3) for kind in KINDS]
    assert all(fits(values, structure) for values in drawn)
    assert len({tuple(values) for values in drawn}) > 2
    tape, rng = Tape(arrays, of, 5, KINDS), random.Random(1)
    rows = arrays.typed(arrays.share(8 * 40 * 4)[1].reshape(8, -1), "int32")
    tape.write(rows, tape.patch([slot % len(KINDS) for slot in range(8)], rng))
    slots = [[int(value) for value in row] for row in rows]
    assert all(fits(values, structure) for values in slots) and slots[0] != slots[4]


def test_permutation_has_every_value_once(arrays: Any) -> None:
    values = draw(arrays, tensor(structure="distinct", high=40), 3, "normal")
    assert sorted(int(value) for value in values) == list(range(40))
