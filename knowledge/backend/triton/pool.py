"""Maximum and average pooling in 1, 2 or 3 dimensions, with padding, dilation and ceil_mode.

Where windows are wide and far apart, neighbouring lanes read a window's row: one value a lane and
window would touch a line of the cache for each lane.
"""

import math

import torch
import triton
import triton.language as tl

POOL_BLOCK = 256  # kopt: knob POOL_BLOCK in [128, 256, 512, 1024, 2048] results of a program
POOL_ROWS = 8  # kopt: knob POOL_ROWS in [2, 4, 8, 16] rows of results, where windows overlap
POOL_WARPS = 4  # kopt: knob POOL_WARPS in [2, 4, 8] warps of a program


@triton.jit
def pool_larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def pool_kernel(
        # kopt: operands
        x, y, blocks, scale, AVERAGE: tl.constexpr, DIVIDE: tl.constexpr, D: tl.constexpr,
        H: tl.constexpr, W: tl.constexpr, OD: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
        KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SD: tl.constexpr, SH: tl.constexpr,
        SW: tl.constexpr, PD: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, DD: tl.constexpr,
        DH: tl.constexpr, DW: tl.constexpr, LANES: tl.constexpr,
        BLOCK: tl.constexpr):
    """BLOCK results of one plane. DIVIDE: 1 by what lies in the tensor, 2 or in its padding."""
    plane = (tl.program_id(0) // blocks).to(tl.int64)
    result = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    left = result % OW * SW - PW
    top = result // OW % OH * SH - PH
    front = result // (OW * OH) * SD - PD
    known = result < OD * OH * OW
    x += plane * (D * H * W)
    value = tl.full([BLOCK, LANES], 0.0 if AVERAGE else -float("inf"), tl.float32)
    for d in tl.static_range(KD):
        for h in tl.static_range(KH):
            for first in tl.static_range(0, KW, LANES):
                w = first + tl.arange(0, LANES)[None, :]
                i, j, k = (front + d * DD)[:, None], (top + h * DH)[:, None], left[:, None] + w * DW
                there = (known[:, None] & (i >= 0) & (i < D) & (j >= 0) & (j < H) & (k >= 0)
                         & (k < W) & (w < KW))
                one = tl.load(x + (i * H + j) * W + k, mask=there,
                              other=0.0 if AVERAGE else -float("inf")).to(tl.float32)
                value = value + one if AVERAGE else pool_larger(value, one)
    value = tl.sum(value, 1) if AVERAGE else tl.reduce(value, 1, pool_larger)
    if DIVIDE:
        PAD: tl.constexpr = DIVIDE - 1
        wide = (tl.minimum(left + KW, W + PAD * PW) - (left if PAD else tl.maximum(left, 0)))
        high = (tl.minimum(top + KH, H + PAD * PH) - (top if PAD else tl.maximum(top, 0)))
        deep = (tl.minimum(front + KD, D + PAD * PD) - (front if PAD else tl.maximum(front, 0)))
        value = value / (wide * high * deep).to(tl.float32)
    else:
        value *= scale
    at = plane * (OD * OH * OW) + result
    inside = known
    # kopt: epilogue value
    tl.store(y + at, value, mask=inside)


@triton.jit
def pool_rows(
        # kopt: operands
        x, y, scale, AVERAGE: tl.constexpr, DIVIDE: tl.constexpr, H: tl.constexpr,
        W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
        SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, DH: tl.constexpr,
        DW: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A tile of one plane of results; windows that overlap share the rows that they read."""
    ACROSS: tl.constexpr = (OW + COLUMNS - 1) // COLUMNS
    DOWN: tl.constexpr = (OH + ROWS - 1) // ROWS
    plane = (tl.program_id(0) // (ACROSS * DOWN)).to(tl.int64)
    tile = tl.program_id(0) % (ACROSS * DOWN)
    down = tile // ACROSS * ROWS
    lane = tl.arange(0, ROWS)[:, None]
    row = down + lane
    column = tile % ACROSS * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    top, left = row * SH - PH, column * SW - PW
    first = x + plane * (H * W) + (down * SH - PH) * W + left
    NOTHING: tl.constexpr = 0.0 if AVERAGE else -float("inf")
    value = tl.full([ROWS, COLUMNS], NOTHING, tl.float32)
    for below in tl.static_range((ROWS - 1) * SH + (KH - 1) * DH + 1):
        i = down * SH - PH + below
        across = tl.full([1, COLUMNS], NOTHING, tl.float32)
        for w in tl.static_range(KW):
            j = left + w * DW
            there = (i >= 0) & (i < H) & ((j >= 0) & (j < W))
            one = tl.load(first + (below * W + w * DW), mask=there, other=NOTHING).to(tl.float32)
            across = across + one if AVERAGE else pool_larger(across, one)
        for result in tl.static_range(ROWS):
            if (below >= result * SH and (below - result * SH) % DH == 0
                    and below - result * SH <= (KH - 1) * DH):
                more = value + across if AVERAGE else pool_larger(value, across)
                value = tl.where(lane == result, more, value)
    if DIVIDE:
        PAD: tl.constexpr = DIVIDE - 1
        wide = (tl.minimum(left + KW, W + PAD * PW) - (left if PAD else tl.maximum(left, 0)))
        high = (tl.minimum(top + KH, H + PAD * PH) - (top if PAD else tl.maximum(top, 0)))
        value = value / (wide * high).to(tl.float32)
    else:
        value *= scale
    at = plane * (OH * OW) + row * OW + column
    inside = (row < OH) & (column < OW)
    # kopt: epilogue value
    tl.store(y + at, value, mask=inside)


def pool_sizes(value, dims, fill):
    """Return three sizes: those of the missing leading dimensions are `fill`."""
    sizes = [value] * dims if isinstance(value, int) else list(value)
    return [fill] * (3 - dims) + (sizes * dims if len(sizes) == 1 else sizes)


def pool(
        # kopt: operands
        x, dims, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, op="max",
        count_include_pad=True, divisor_override=None):
    """x is [..., *dims]; op is max or avg, which has no dilation."""
    x = x.contiguous()
    kernel = pool_sizes(kernel_size, dims, 1)
    step = pool_sizes(stride, dims, 1) if stride else kernel
    pad, spread = pool_sizes(padding, dims, 0), pool_sizes(dilation, dims, 1)
    sizes = pool_sizes(x.shape[x.dim() - dims:], dims, 1)
    results = []
    for size, k, s, p, d in zip(sizes, kernel, step, pad, spread, strict=True):
        room = size + 2 * p - d * (k - 1) - 1
        result = (-(-room // s) if ceil_mode else room // s) + 1
        results.append(result - (ceil_mode and (result - 1) * s >= size + p))
    y = torch.empty(*x.shape[:x.dim() - dims], *results[3 - dims:], dtype=x.dtype, device=x.device)
    planes = x.shape[:x.dim() - dims].numel()
    if not y.numel():
        return y
    scale, divide = 1.0, 0
    if op == "avg":
        scale = 1.0 / (divisor_override or math.prod(kernel))
        if not divisor_override and (ceil_mode or (any(pad) and not count_include_pad)):
            divide = 2 if count_include_pad else 1
    if dims == 2 and kernel[1] > step[1] and kernel[1] * kernel[2] <= 64:
        columns = min(POOL_BLOCK, 1 << (results[2] - 1).bit_length())
        rows = min(POOL_ROWS, 1 << (results[1] - 1).bit_length())
        tiles = -(-results[1] // rows) * -(-results[2] // columns)
        pool_rows[(planes * tiles,)](
            # kopt: operands
            x, y, scale, op == "avg", divide, *sizes[1:], *results[1:], *kernel[1:], *step[1:],
            *pad[1:], *spread[1:], ROWS=rows, COLUMNS=columns, num_warps=POOL_WARPS)
        return y
    wide = step[2] * spread[2] >= 4 and kernel[2] >= 4
    lanes = min(32, 1 << (kernel[2] - 1).bit_length()) if wide else 1
    block = max(16, 2 * POOL_BLOCK // lanes) if wide else POOL_BLOCK
    blocks = -(-math.prod(results) // block)
    pool_kernel[(planes * blocks,)](
        # kopt: operands
        x, y, blocks, scale, op == "avg", divide, *sizes, *results, *kernel, *step, *pad, *spread,
        LANES=lanes, BLOCK=block,
        num_warps=2 * POOL_WARPS if wide else POOL_WARPS)
    return y
