"""numpy, torch and a card's kernels compute how much two answers differ."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from harness.child.oracle.arrays_numpy import NumpyArrays
from tests.support.judging.ring_case import OF_NUMPY, made, numbers, tensor

VALUES = {"right": 0.0, "off": 0.5, "not a number": math.nan, "infinite": math.inf}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int32"])
def test_quick_bound_on_the_error_misses_no_row_that_differs(arrays: Any, dtype: str) -> None:
    if dtype not in OF_NUMPY and isinstance(arrays, NumpyArrays):
        pytest.skip("numpy has no such dtype")
    rng = random.Random(7)
    rows = [[rng.gauss(0, 9) for _ in range(700)] for _ in range(6)]
    want = arrays.to_native(numbers(arrays, rows), dtype).reshape(6, 700)
    for columns in ([0], [699], [3, 300]):
        for name, value in VALUES.items():
            if "int" in dtype and not math.isfinite(value):
                continue
            got = want + 0
            for column in columns:
                got[4, column] += int(100 * value) if "int" in dtype else value * 9
            [bounds] = arrays.fetched([arrays.excess(got, want, 0.02)])
            assert [not bound <= 1 for bound in bounds] == [
                slot == 4 and name != "right" for slot in range(6)]
            for limit in (0.0, 0.02):
                exact = arrays.differences(got, want, limit)
                assert [value <= 0.02 for value in exact] == [
                    slot != 4 or name == "right" for slot in range(6)]


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_differences_near_the_limit_are_exact(arrays: Any, scale: float) -> None:
    if isinstance(arrays, NumpyArrays):
        pytest.skip("numpy has no bfloat16")
    rng = random.Random(3)
    values = [[scale * rng.gauss(0, 1) for _ in range(200)] for _ in range(64)]
    want = arrays.to_native(numbers(arrays, values), "bfloat16").reshape(64, 200)
    moved = [[value + (value + 2 * scale) * 0.02 * rng.uniform(0, 1.3) for value in row]
             for row in values]
    got = arrays.to_native(numbers(arrays, moved), "bfloat16").reshape(64, 200)
    exact = arrays.differences(got, want)
    for limit in exact:
        assert [value <= limit for value in arrays.differences(got, want, limit)] == [
            value <= limit for value in exact]


def test_values_that_are_finite_on_neither_side_cost_only_their_rows(arrays: Any) -> None:
    """At most the rows that contain them are compared exactly."""
    want = arrays.to_native(numbers(arrays, [[1.0] * 90] * 40), "float32").reshape(40, 90)
    got, seen = want + 0, []
    for value, slot in ((math.nan, 3), (math.inf, 17)):
        got[slot, 5] = want[slot, 5] = value
    ring = made(arrays, [tensor("x", 4), tensor("out", 90, role="output")], 40)
    differences = arrays.differences
    ring.arrays = type("Spy", (), {"differences": lambda self, got, want, limit: (
        seen.append(len(got)), differences(got, want, limit))[1], "chunk": arrays.chunk})()
    worst = [0.0] * 40
    [bounds] = arrays.fetched([arrays.excess(got, want, 1e-5)])
    ring._judge_rows(got, want, 1e-5, bounds, worst)
    assert sum(seen) in (0, 2) and max(worst) == 0


def test_huge_answers_that_differ_are_seen(arrays: Any) -> None:
    want = arrays.to_native(numbers(arrays, [[1e30] * 50] * 2), "float32").reshape(2, 50)
    got = want * 1
    got[1, 7] = 2e30
    assert [value <= 1e-5 for value in arrays.differences(got, want)] == [True, False]
    [bounds] = arrays.fetched([arrays.excess(got, want, 1e-5)])
    assert bounds[0] <= 1 < bounds[1]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(5, 4096), (3, 70_001), (2, 7)])
def test_kernels_of_a_card_find_what_torch_finds(card_arrays: Any, dtype: str,
                                                 shape: tuple[int, int]) -> None:
    torch = card_arrays.torch
    generator = card_arrays.generator(11)
    want = (torch.randn(shape, generator=generator, device="cuda:0") * 3).to(getattr(torch, dtype))
    moved = torch.rand(shape, generator=generator, device="cuda:0") < 0.3
    got = torch.where(moved, want * 1.0078125, want)
    got[0] = want[0]
    got[1, 1], want[1, 1] = math.nan, math.inf
    exact = card_arrays.differences(got, want)
    [found] = card_arrays.fetched([card_arrays.excess(got, want, 1e-9)])
    assert [value * 1e-9 for value in found] == pytest.approx(exact, rel=1e-2)
    assert card_arrays.kernels.support(got) and found[0] == 0.0
    wide = torch.randn(shape, generator=generator, device="cuda:0", dtype=torch.float64)
    expected = TorchErrors(torch).errors(got, wide)
    assert card_arrays.errors(got, wide) == pytest.approx(expected, rel=1e-9)
    assert expected[2] == 1


class TorchErrors:
    """Computes the errors by torch's operations on the CPU."""

    def __init__(self, torch: Any) -> None:
        from harness.child.oracle.arrays_torch import TorchArrays

        self._arrays = TorchArrays("cpu")

    def errors(self, got: Any, want: Any) -> tuple[float, float, int]:
        return self._arrays.errors(got.cpu(), want.cpu())
