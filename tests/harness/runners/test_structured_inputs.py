"""Drawn inputs and inputs of timed calls have the structure that the task declares."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import pytest

from harness.case import DISTRIBUTIONS
from harness.child.oracle.arrays_numpy import NumpyArrays
from harness.child.oracle.inputs import draw
from harness.child.oracle.tape import Tape
from tests.support.judging.ring_case import made, redraw

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
    spec = tensor(structure=structure)
    drawn = [[int(value) for value in draw(arrays, spec, seed, kind)]
             for seed in range(3) for kind in KINDS]
    assert all(fits(values, structure) for values in drawn)
    assert len({tuple(values) for values in drawn}) > 2
    tape, rng = Tape(arrays, spec, 5, KINDS), random.Random(1)
    [(_, raw)] = arrays.share(8 * 40 * 4, 1)
    rows = arrays.typed(raw[:8 * 40 * 4].reshape(8, -1), "int32")
    tape.write(rows, tape.patch([slot % len(KINDS) for slot in range(8)], rng))
    slots = [[int(value) for value in row] for row in rows]
    assert all(fits(values, structure) for values in slots) and slots[0] != slots[4]


def test_permutation_has_every_value_once(arrays: Any) -> None:
    values = draw(arrays, tensor(structure="distinct", high=40), 3, "normal")
    assert sorted(int(value) for value in values) == list(range(40))


def is_row_of(values: list[float], structure: str) -> bool:
    if structure == "two_valued":
        return set(values) <= {-1.0, 3.0}
    shares = values if structure == "probabilities" else [math.exp(value) for value in values]
    return min(shares) > 0 and abs(sum(shares) - 1) < 1e-5


@pytest.mark.parametrize("structure", ["two_valued", "probabilities", "log_probabilities"])
def test_rows_of_drawn_floats_and_of_timed_calls_have_the_declared_structure(
        arrays: Any, structure: str) -> None:
    low, high = (-1.0, 3.0) if structure == "two_valued" else (None, None)
    spec = tensor(structure=structure, dtype="float32", shape=[5, 40], low=low, high=high)
    for kind in DISTRIBUTIONS:
        rows = [draw(arrays, spec, seed, kind).reshape(-1, 40).tolist() for seed in range(2)]
        assert all(is_row_of(row, structure) for drawn in rows for row in drawn), kind
        assert rows[0] != rows[1] or kind == "constant"
    ring = made(arrays, [{**spec, "stored": "float32", "nbytes": 800}], 8)
    seen: set[tuple[float, ...]] = set()
    for _ in range(3):
        redraw(ring, 8)
        slots = ring.arrays.typed(ring.sides["candidate"].rows(ring.inputs[0]), "float32")
        assert all(is_row_of(row, structure) for slot in slots
                   for row in slot.reshape(5, 40).tolist())
        seen |= {tuple(slot.tolist()) for slot in slots}
        for slot, held in enumerate(slots):
            assert ring.arrays.equal(held, ring.contents(slot)["index"])
    assert len(seen) == 24, "no contents come twice"


def test_two_valued_integers_are_the_lowest_and_the_highest(arrays: Any) -> None:
    drawn = draw(arrays, tensor(structure="two_valued", low=-1.0, high=2.0), 1, "normal")
    assert {int(value) for value in drawn} == {-1, 1}
