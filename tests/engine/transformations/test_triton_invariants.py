"""Loads leave loops only where nothing can change what they load; divisions become products."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.transformations.transformation import DoesNotApply
from engine.transformations.triton.invariant_loads import InvariantLoads
from engine.transformations.triton.scalars import BlockReciprocal
from tests.support.kernels import triton_pairs, triton_sources
from tests.support.kernels.triton_sources import HEAD, RMS_NORM, SOFTMAX

SCALED_ROWS = HEAD + """\
@triton.jit
def scale_rows(X, W, factor, Y, rows, cols, BLOCK: tl.constexpr):
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = tl.arange(0, BLOCK)
        mask = at < cols
        w = tl.load(W + at, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(X + row * cols + at, mask=mask)
        tl.store(Y + row * cols + at, x * w * tl.load(factor), mask=mask)


def scaled_rows(x, weight, factor):
    rows, cols = x.shape
    out = torch.empty_like(x)
    scale_rows[(3,)](x, weight, factor, out, rows, cols, BLOCK=64)
    return out
"""
SUMS = HEAD + """\
@triton.jit
def sum_kernel(x, shift, begins, out, BLOCK: tl.constexpr):
    part = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(tl.load(begins + part), tl.load(begins + part + 1), BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(x + at, at < tl.load(begins + part + 1), 0.0) - tl.load(shift + part)
    tl.store(out + part, tl.sum(total, 0))


def sums(x, shift, begins):
    out = torch.empty(begins.numel() - 1)
    sum_kernel[(begins.numel() - 1,)](x, shift, begins, out, BLOCK=16)
    return out
"""
GROUPS = HEAD + """\
@triton.jit
def group_kernel(x_ptr, scale_ptr, out_ptr, n, groups, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    x_row = x_ptr + group * n
    out_row = out_ptr + group * n
    for i in tl.range(0, n, BLOCK):
        at = i + tl.arange(0, BLOCK)
        x = tl.load(x_row + at, mask=at < n)
        scale = tl.load(scale_ptr + group)
        tl.store(out_row + at, x / scale, mask=at < n)


def groups(x, scale):
    out = torch.zeros_like(x)
    group_kernel[(x.shape[0],)](x, scale, out, x.shape[1], x.shape[0], BLOCK=16)
    return out
"""
CASES = {"scaled_rows": (SCALED_ROWS, "torch.randn(7, 45), torch.randn(45), torch.randn(1)"),
         "sums": (SUMS, "torch.randn(70), torch.randn(4), torch.tensor([0, 20, 20, 37, 70])"),
         "groups": (GROUPS, "torch.randn(3, 45), torch.randn(3)")}


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_loads_before_their_loop_give_the_same_bits(tmp_path: Path) -> None:
    triton_pairs.same_bits(InvariantLoads(), CASES, tmp_path)


def test_load_moves_with_its_address_and_is_masked_if_the_loop_may_be_empty(
        ) -> None:
    changed = InvariantLoads().apply(SCALED_ROWS)
    before, _, inside = changed.source.partition("    for row in range(")
    assert "fixed = tl.load(W + tl.arange(0, BLOCK), mask=(tl.arange(0, BLOCK) < cols) & " \
           "(tl.program_id(0) < rows), other=0.0)\n" in before
    assert "fixed_2 = tl.load(factor, mask=tl.program_id(0) < rows)\n" in before
    assert "w = fixed.to(tl.float32)" in inside and inside.count("tl.load(") == 1
    with pytest.raises(DoesNotApply, match="no loop of a kernel loads the same place"):
        InvariantLoads().apply(changed.source)


@pytest.mark.parametrize(("old", "new", "why"), [
    ("out = torch.empty_like(x)", "out = x", "may store to what it loads"),
    ("out = torch.empty_like(x)", "out = torch.empty_like(x)\n    weight = out[0]",
     "may store to what it loads"),
    ("(x, weight, factor, out,", "(x, out, factor, out,", "may store to what it loads"),
    ("    scale_rows[(3,)]", "    launch = scale_rows\n    launch[(3,)]", "may store to what it"),
    ("        x = tl.load(X", "        tl.atomic_add(W, 1.0)\n        x = tl.load(X", "may write"),
])
def test_load_that_a_store_of_the_loop_may_change_stays(old: str, new: str, why: str) -> None:
    source = SCALED_ROWS.replace(" * tl.load(factor)", "")
    assert old in source
    with pytest.raises(DoesNotApply, match=why):
        InvariantLoads().apply(source.replace(old, new))


@pytest.mark.parametrize(("old", "new"), [
    ("tl.load(factor)", "tl.load(factor + row)"),
    ("tl.load(factor)", "tl.load(factor, volatile=True)"),
    ("tl.load(factor)", "tl.load(factor + tl.load(X + row))"),
])
def test_load_of_another_place_in_each_step_stays(old: str, new: str) -> None:
    assert new in InvariantLoads().apply(SCALED_ROWS.replace(old, new)).source


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_products_with_a_reciprocal_compute_the_same_up_to_rounding(tmp_path: Path) -> None:
    changed = BlockReciprocal().apply(SOFTMAX).source
    assert "power * (1.0 / (tl.sum(power, axis=0)))" in changed
    assert "x * (1.0 / (scale))" in BlockReciprocal().apply(GROUPS).source
    (difference, error), = triton_sources.differences([("softmax", changed)], tmp_path)
    assert difference < 2e-6, error


@pytest.mark.parametrize("source", [
    RMS_NORM,  # divides a sum, which is one number
    GROUPS.replace("x / scale", "x / (scale + at)"),  # divides by a block
    GROUPS.replace("x / scale", "x / 2.0"),
    GROUPS.replace("x / scale", "x // scale"),
])
def test_other_divisions_are_refused(source: str) -> None:
    with pytest.raises(DoesNotApply, match="divides a block by a scalar"):
        BlockReciprocal().apply(source)
