"""Lanes keep 32-bit offsets where a 64-bit number can be added to the pointer first."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.transformations.transformation import DoesNotApply
from engine.transformations.triton.scalars import NarrowOffsets
from tests.support.kernels import triton_pairs
from tests.support.kernels.triton_sources import ADD, HEAD, RMS_NORM

ROWS = HEAD + """\
@triton.jit
def row_kernel(x_ptr, y_ptr, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    base = row * stride
    lanes = tl.arange(0, BLOCK)
    at = base + lanes
    x = tl.load(x_ptr + at, mask=lanes < cols)
    tl.store(y_ptr + at, x * 2, mask=lanes < cols)


def row(x):
    y = torch.empty_like(x)
    row_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=64)
    return y
"""
FLAT = ADD.replace("pid * BLOCK + tl.arange(0, BLOCK)",
                   "pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)")
TILES = HEAD + """\
@triton.jit
def tile_kernel(x, y, width, height, R: tl.constexpr, C: tl.constexpr):
    rows = tl.arange(0, R)[:, None]
    cols = tl.arange(0, C)[None, :]
    first = tl.cast(tl.program_id(0), tl.int64) * R
    for left in range(0, width, C):
        inside = (first + rows < height) & (left + cols < width)
        v = tl.load(x + (first * width + rows * width + left + cols), mask=inside)
        tl.store(y + (first * width + rows * width + left + cols), v + 1, mask=inside)


def tile(x):
    y = torch.empty_like(x)
    tile_kernel[(triton.cdiv(x.shape[0], 4),)](x, y, x.shape[1], x.shape[0], R=4, C=16)
    return y
"""
CASES = {"row": (ROWS, "torch.randn(5, 45)"), "tile": (TILES, "torch.randn(10, 37)"),
         "add": (FLAT, "torch.randn(131), torch.randn(131)")}


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_narrow_offsets_reach_the_same_elements(tmp_path: Path) -> None:
    triton_pairs.same_bits(NarrowOffsets(), CASES, tmp_path)


def test_64_bit_number_is_added_to_the_pointer_first() -> None:
    assert "tl.load(x_ptr + row * stride + lanes, mask" in NarrowOffsets().apply(ROWS).source
    flat = NarrowOffsets().apply(FLAT).source
    assert "tl.load(x_ptr + pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK), mask=mask)" in flat
    tiles = NarrowOffsets().apply(TILES).source
    assert "tl.load(x + first * width + rows * width + left + cols, mask=inside)" in tiles
    with pytest.raises(DoesNotApply):
        NarrowOffsets().apply(tiles)
    wraps = ROWS.replace("base + lanes", "base + (lanes * stride + cols)")
    assert "x_ptr + row * stride + (lanes * stride + cols)" in NarrowOffsets().apply(wraps).source


@pytest.mark.parametrize("source", [
    RMS_NORM,  # already adds it first
    ADD,  # has no 64-bit number: a sum of 32 bits may wrap, and a pointer does not
    ROWS.replace("at = base + lanes", "at = base + lanes\n    at += 1"),  # `at` changes later
    ROWS.replace("at = base + lanes", "at = (row + lanes) * stride"),  # lanes reach past 32 bits
    ROWS.replace("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK).to(tl.int64) * stride"),
    ROWS.replace("at = base + lanes", "at = base - lanes"),
    ROWS.replace("x_ptr + at", "pointers").replace("y_ptr + at", "outs").replace(
        "    x = tl", "    pointers = x_ptr + at\n    outs = y_ptr + at\n    x = tl"),
])
def test_other_addresses_are_refused(source: str) -> None:
    with pytest.raises(DoesNotApply, match="adds lanes to a 64-bit number"):
        NarrowOffsets().apply(source)
