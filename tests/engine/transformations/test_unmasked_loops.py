"""Loops are split where only their last step is masked, and nowhere else."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.transformations.transformation import DoesNotApply
from engine.transformations.triton.unmasked_loops import UnmaskedLoops
from tests.support.kernels import triton_pairs
from tests.support.kernels.triton_sources import HEAD

ROW = HEAD + """\
@triton.jit
def row_kernel(X, Y, rows, cols, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for k in range(0, cols, BLOCK):
        at = k + lanes
        mask = at < cols
        total += tl.load(X + at, mask=mask, other=0.0)
    tl.store(Y, tl.sum(total, 0))
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_split_loops_compute_the_same_bits(tmp_path: Path) -> None:
    triton_pairs.same_bits(UnmaskedLoops(), triton_pairs.MASKED, tmp_path)


def test_first_loop_has_no_mask_and_second_loop_keeps_the_original_body() -> None:
    source = UnmaskedLoops().apply(ROW).source
    main, _, rest = source.partition("for k in tl.range(whole, cols, BLOCK, num_stages=1):\n")
    assert "whole = cols // BLOCK * BLOCK\n    for k in range(0, whole, BLOCK):\n" in main
    assert "mask" not in main and "total += tl.load(X + at)\n" in main
    assert rest == ROW.partition("for k in range(0, cols, BLOCK):\n")[2]
    with pytest.raises(DoesNotApply, match="remainder of a loop that is already split"):
        UnmaskedLoops().apply(source)


def test_masks_of_other_dimensions_are_kept() -> None:
    main = UnmaskedLoops().apply(triton_pairs.MATMUL).source.partition("num_stages=1")[0]
    assert "mask=(rows[:, None] < M), other=0.0)" in main
    assert "mask=(cols[None, :] < N), other=0.0)" in main and "depth[None, :] < K" not in main


def test_mask_whose_value_is_used_stays_and_is_always_true() -> None:
    main = UnmaskedLoops().apply(triton_pairs.SEGMENTS).source.partition("num_stages=1")[0]
    assert "inside = (tl.arange(0, BLOCK) < BLOCK)\n" in main
    assert "values = tl.load(x + at + lanes)\n" in main
    assert "whole = first + tl.maximum((last - (first)), 0) // BLOCK * BLOCK\n" in main


@pytest.mark.parametrize(("old", "new", "why"), [
    ("at < cols", "at < rows", "false only in its last step"),
    ("at < cols", "at <= cols", "false only in its last step"),
    ("at < cols", "at + 1 < cols", "false only in its last step"),
    ("at < cols", "at != cols", "false only in its last step"),
    ("lanes = tl.arange(0, BLOCK)", "lanes = tl.arange(0, 2 * BLOCK)", "false only in"),
    ("lanes = tl.arange(0, BLOCK)", "lanes = tl.arange(0, BLOCK) * 2", "false only in"),
    ("at = k + lanes", "at = k + lanes\n        at += 1", "false only in its last step"),
    ("    lanes =", "    lanes = rows\n    lanes =", "false only in its last step"),
    ("        mask = ", "        cols -= rows\n        mask = ", "changes its own bounds"),
    ("        mask = ", "        if rows > 1:\n            break\n        mask = ", "end early"),
    ("    tl.store(Y, ", "    tl.store(Y + k, ", "has a counter that is used after it"),
    ("for k in range(0, cols, BLOCK)", "for k in tl.static_range(0, 64, BLOCK)", "no loop"),
    ("for k in range(0, cols, BLOCK)", "for k in range(0, tl.cdiv(cols, BLOCK))", "false only"),
])
def test_loop_that_cannot_be_split_is_refused_with_the_reason(old: str, new: str, why: str) -> None:
    assert old in ROW
    with pytest.raises(DoesNotApply, match=why):
        UnmaskedLoops().apply(ROW.replace(old, new))


def test_mask_computed_in_the_previous_step_is_kept() -> None:
    late = ROW.replace("        mask = at < cols\n", "").replace(
        "other=0.0)\n", "other=0.0)\n        mask = at < cols\n").replace(
        "    for k", "    mask = lanes < 1\n    for k")
    main = UnmaskedLoops().apply(late).source.partition("num_stages=1")[0]
    assert "tl.load(X + at, mask=mask, other=0.0)" in main


def test_mask_that_gives_a_load_its_shape_stays() -> None:
    scalar = ROW.replace("tl.load(X + at,", "tl.load(X + rows + tl.zeros([1], tl.int32),")
    main = UnmaskedLoops().apply(scalar).source.partition("num_stages=1")[0]
    assert "tl.zeros([1], tl.int32), mask=mask, other=0.0)" in main
    assert "mask = (tl.arange(0, BLOCK) < BLOCK)" in main


def test_range_of_one_argument_and_mask_with_an_added_dimension_are_understood() -> None:
    source = triton_pairs.STEPPED.replace("range(0, tl.cdiv", "range(tl.cdiv").replace(
        "        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK,",
        "        left = offs_k + k * BK < K\n        a = tl.load(a_ptrs, mask=left[None, :],")
    main = UnmaskedLoops().apply(source).source.partition("num_stages=1")[0]
    assert "    whole = K // BK\n    for k in range(whole):\n" in main
    assert "a = tl.load(a_ptrs)\n" in main and "left" not in main
