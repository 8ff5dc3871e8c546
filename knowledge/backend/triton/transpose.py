"""A contiguous copy of a tensor with two dimensions exchanged, tile by tile."""

import torch
import triton
import triton.language as tl

TRANSPOSE_ROWS = 64  # kopt: knob TRANSPOSE_ROWS in [32, 64, 128] rows of a tile
TRANSPOSE_COLUMNS = 64  # kopt: knob TRANSPOSE_COLUMNS in [32, 64, 128] columns of a tile
TRANSPOSE_WARPS = 4  # kopt: knob TRANSPOSE_WARPS in [2, 4, 8] warps of a tile


@triton.jit
def transpose_kernel(
        x, y, m, n, middle, inner, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[.., m, middle, n, inner] to [.., n, middle, m, inner]; inner is 1 for the usual case."""
    blocks = tl.cdiv(n * inner, COLUMNS)
    tiles = tl.cdiv(m, ROWS) * blocks
    tile = tl.program_id(0) % tiles
    place = tl.program_id(0) // tiles
    between = place % middle
    outer = (place // middle).to(tl.int64) * m * n * middle * inner
    row = tile // blocks * ROWS + tl.arange(0, ROWS)[:, None]
    lane = tile % blocks * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    column = lane // inner
    inside = (row < m) & (column < n)
    at = outer + (row.to(tl.int64) * middle + between) * n * inner + lane
    value = tl.load(x + at, mask=inside)
    at = outer + ((column.to(tl.int64) * middle + between) * m + row) * inner + lane % inner
    tl.store(y + at, value, mask=inside)


def transpose(x, dim0, dim1):
    x = x.contiguous()
    first, last = sorted((dim0 % x.dim(), dim1 % x.dim()))
    shape = list(x.shape)
    shape[first], shape[last] = shape[last], shape[first]
    y = torch.empty(shape, dtype=x.dtype, device=x.device)
    if first == last or not x.numel():
        return y.copy_(x)
    m, n = x.shape[first], x.shape[last]
    middle, inner = x.shape[first + 1:last].numel(), x.shape[last + 1:].numel()
    tiles = -(-m // TRANSPOSE_ROWS) * -(-(n * inner) // TRANSPOSE_COLUMNS)
    transpose_kernel[(x.shape[:first].numel() * middle * tiles,)](
        x, y, m, n, middle, inner, ROWS=TRANSPOSE_ROWS, COLUMNS=TRANSPOSE_COLUMNS,
        num_warps=TRANSPOSE_WARPS)
    return y
