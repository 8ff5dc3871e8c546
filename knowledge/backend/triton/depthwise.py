"""Depthwise convolution in 1 or 2 dimensions: a filter, or several, for each channel."""

import torch
import triton
import triton.language as tl

DEPTHWISE_ROWS = 8  # kopt: knob DEPTHWISE_ROWS in [2, 4, 8, 16] rows of results of a program
DEPTHWISE_COLUMNS = 256  # kopt: knob DEPTHWISE_COLUMNS in [32, 64, 128, 256, 512] of each row
DEPTHWISE_WARPS = 4  # kopt: knob DEPTHWISE_WARPS in [2, 4, 8] warps of a program


@triton.jit
def depthwise_kernel(
        # kopt: operands
        x, weight, bias, y, channels, many, BIAS: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
        OH: tl.constexpr, OW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr,
        SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A tile of one plane of results; `many` of them belong to a channel of x."""
    ACROSS: tl.constexpr = (OW + COLUMNS - 1) // COLUMNS
    DOWN: tl.constexpr = (OH + ROWS - 1) // ROWS
    plane = tl.program_id(0) // (ACROSS * DOWN)
    tile = tl.program_id(0) % (ACROSS * DOWN)
    x += (plane // many).to(tl.int64) * (H * W)
    weight += plane % channels * (KH * KW)
    down, across = tile // ACROSS * ROWS, tile % ACROSS * COLUMNS
    lane = tl.arange(0, ROWS)[:, None]
    row, column = down + lane, across + tl.arange(0, COLUMNS)[None, :]
    value = tl.zeros([ROWS, COLUMNS], tl.float32)
    first = x + (down * SH - PH) * W + (column * SW - PW)
    # each row of x is read once for all rows of results that it belongs to
    for below in tl.static_range((ROWS - 1) * SH + (KH - 1) * DH + 1):
        i = down * SH - PH + below
        for w in tl.static_range(KW):
            j = column * SW - PW + w * DW
            there = (i >= 0) & (i < H) & ((j >= 0) & (j < W))
            one = tl.load(first + (below * W + w * DW), mask=there, other=0.0).to(tl.float32)
            for result in tl.static_range(ROWS):
                if (below >= result * SH and (below - result * SH) % DH == 0
                        and below - result * SH <= (KH - 1) * DH):
                    factor = tl.load(weight + (below - result * SH) // DH * KW + w).to(tl.float32)
                    value = tl.where(lane == result, value + one * factor, value)
    if BIAS:
        value += tl.load(bias + plane % channels).to(tl.float32)
    at = plane.to(tl.int64) * (OH * OW) + row * OW + column
    inside = (row < OH) & (column < OW)
    # kopt: epilogue value
    tl.store(y + at, value, mask=inside)


def depthwise(
        # kopt: operands
        x, weight, bias=None, stride=1, padding=0, dilation=1):
    """x [n, channels, (h,) w]; weight [channels * many, 1, (kh,) kw], as a grouped one's."""
    dims = weight.dim() - 2

    def both(value, fill):
        sizes = [value] * dims if isinstance(value, int) else list(value)
        return [fill] * (2 - dims) + (sizes * dims if len(sizes) == 1 else sizes)

    x, weight = x.contiguous(), weight.contiguous()
    sizes, kernel = both(x.shape[-dims:], 1), both(weight.shape[2:], 1)
    step, pad, spread = both(stride, 1), both(padding, 0), both(dilation, 1)
    results = [(size + 2 * p - d * (k - 1) - 1) // s + 1
               for size, k, s, p, d in zip(sizes, kernel, step, pad, spread, strict=True)]
    channels = weight.shape[0]
    y = torch.empty(x.shape[0], channels, *results[2 - dims:], dtype=x.dtype, device=x.device)
    columns = min(DEPTHWISE_COLUMNS, 1 << (results[1] - 1).bit_length())
    rows = min(DEPTHWISE_ROWS, 1 << (results[0] - 1).bit_length())
    tiles = -(-results[0] // rows) * -(-results[1] // columns)
    if y.numel():
        depthwise_kernel[(x.shape[0] * channels * tiles,)](
            # kopt: operands
            x, weight, x if bias is None else bias, y, channels, channels // x.shape[1],
            bias is not None, *sizes, *results, *kernel, *step, *pad, *spread, ROWS=rows,
            COLUMNS=columns, num_warps=DEPTHWISE_WARPS)
    return y
