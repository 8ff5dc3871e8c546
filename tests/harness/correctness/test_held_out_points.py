"""Held-out points lie in each gap between measured values, and beyond the largest."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.correctness import held_out_shapes
from harness.tasks.target import Arg, ConfigClass
from tests.support.kernels import kernel_case

MEASURED = st.lists(st.fixed_dictionaries({"m": st.integers(1, 4096), "n": st.integers(1, 64)}),
                    min_size=1, max_size=8)


@given(MEASURED, st.randoms(use_true_random=False))
def test_no_point_is_measured_and_each_differs_in_one_value(
        measured: list[dict[str, int]], rng: random.Random) -> None:
    for point in held_out_shapes.points(measured, ["m", "n"], rng):
        found = point.applied_to(measured[point.base])
        assert found not in measured and found[point.name] > 0
        assert found[point.name] not in {each[point.name] for each in measured}
        assert sum(found[name] != measured[point.base][name] for name in found) == 1


@given(MEASURED, st.integers(1, 4096), st.randoms(use_true_random=False))
def test_a_point_lies_in_each_gap_between_measured_values_and_beyond_the_largest(
        measured: list[dict[str, int]], low: int, rng: random.Random) -> None:
    values = sorted({point["m"] for point in measured} | {low})
    found = {each.value for each in held_out_shapes.points([{"m": m} for m in values], ["m"], rng)}
    for before, after in pairwise(values):
        if after - before > 2 and values[-1] >= held_out_shapes.LEAST_SIZE:
            inside = [value for value in found if before < value < after]
            assert inside, (values, found)
    if values[-1] >= held_out_shapes.LEAST_SIZE:
        assert any(value > values[-1] for value in found)


def test_flags_are_not_sizes() -> None:
    rng = random.Random(1)
    assert held_out_shapes.points([{"causal": 1}, {"causal": 0}], ["causal"], rng) == []


@pytest.mark.parametrize(("high", "is_made_smaller"), [(64, False), ("rows", True), (65, True)])
def test_size_that_may_bound_indices_of_a_fixed_range_is_not_made_smaller(
        high: int | str, is_made_smaller: bool) -> None:
    args = kernel_case.target().args
    task = kernel_case.target(args=(
        *args, Arg(name="at", dtype="int64", shape=("n",), low=0, high=high),
        Arg(name="table", dtype="float32", shape=("rows", 8))),
        classes=(ConfigClass(name="one", shape={"n": 1, "rows": 64}),))
    rows = {entry.shape["rows"] for seed in range(20)
            for entry in held_out_shapes.held_out_shapes(task, random.Random(seed))}
    assert max(rows) > 64 and (min(rows) < 64) == is_made_smaller, rows
