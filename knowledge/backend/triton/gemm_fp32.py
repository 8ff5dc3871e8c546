"""Float32 matrix products by six bfloat16 products: each operand is split into three parts first.

Three bfloat16 values hold the 24 bits of a float32 value. The products of parts that are left out
are below its rounding. Sums are float32, rounded step by step. Pays where both dimensions of the
result exceed some 500.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

GEMM_FP32_M = 128  # kopt: knob GEMM_FP32_M in [64, 128, 256] rows of a tile
GEMM_FP32_N = 128  # kopt: knob GEMM_FP32_N in [64, 128, 256] columns of a tile
GEMM_FP32_K = 32  # kopt: knob GEMM_FP32_K in [16, 32, 64] depth of a step
GEMM_FP32_GROUP = 8  # kopt: knob GEMM_FP32_GROUP in [1, 4, 8, 16] rows of tiles that share b
GEMM_FP32_WARPS = 8  # kopt: knob GEMM_FP32_WARPS in [4, 8] warps of a tile
GEMM_FP32_STAGES = 4  # kopt: knob GEMM_FP32_STAGES in [1, 2, 3, 4] steps in flight at most

# A thread keeps its part of the sums, and of a step's, in its 255 registers.
# kopt: require GEMM_FP32_M * GEMM_FP32_N <= GEMM_FP32_WARPS * 32 * 100


@triton.jit
def gemm_fp32_split(x, parts, rows, columns, pitch, x_batch, x_row, x_column, size,
                    ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write [batches, rows, columns] three times, as its rounded value and what that leaves."""
    blocks = tl.cdiv(columns, COLUMNS)
    tiles = tl.cdiv(rows, ROWS) * blocks
    batch = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    row = (tile // blocks * ROWS + tl.arange(0, ROWS))[:, None].to(tl.int64)
    column = (tile % blocks * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (row < rows) & (column < columns)
    value = tl.load(x + batch * x_batch + row * x_row + column * x_column, mask=inside, other=0.0)
    parts += (batch * rows + row) * pitch + column
    dtype: tl.constexpr = parts.dtype.element_ty
    for _ in tl.static_range(3):
        rounded = value.to(dtype)
        tl.store(parts, rounded, mask=inside)
        rest = value - rounded.to(tl.float32)
        value = tl.where(tl.abs(value) < float("inf"), rest, 0.0)
        parts += size


@triton.jit
def gemm_fp32_kernel(
        # kopt: operands
        a, b, c, bias, tiles, batches, m, n, k, BIAS: tl.constexpr, TRIANGLE: tl.constexpr,
        EVEN: tl.constexpr, A_TURNED: tl.constexpr, B_TURNED: tl.constexpr, BLOCK_M: tl.constexpr,
        BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr):
    """Tiles in turn; a and b describe [3 * batches, ...], what lies outside is zero."""
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        batch = tile // (tiles_m * tiles_n)
        place = tile % (tiles_m * tiles_n)
        first = place // (GROUP * tiles_n) * GROUP
        height = min(tiles_m - first, GROUP)
        top = (first + place % (GROUP * tiles_n) % height) * BLOCK_M
        left = place % (GROUP * tiles_n) // height * BLOCK_N
        length = k
        if TRIANGLE == 1:  # nothing below the diagonal is computed
            length = tl.where(top >= left + BLOCK_N, 0, k)
        if TRIANGLE == 2:
            length = tl.where(left >= top + BLOCK_M, 0, k)
        value = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for start in range(0, length, BLOCK_K):
            x0 = gemm_fp32_load(a, batch, top, start, A_TURNED, BLOCK_M, BLOCK_K)
            x1 = gemm_fp32_load(a, batch + batches, top, start, A_TURNED, BLOCK_M, BLOCK_K)
            x2 = gemm_fp32_load(a, batch + 2 * batches, top, start, A_TURNED, BLOCK_M, BLOCK_K)
            y0 = gemm_fp32_load(b, batch, start, left, B_TURNED, BLOCK_K, BLOCK_N)
            y1 = gemm_fp32_load(b, batch + batches, start, left, B_TURNED, BLOCK_K, BLOCK_N)
            y2 = gemm_fp32_load(b, batch + 2 * batches, start, left, B_TURNED, BLOCK_K, BLOCK_N)
            step = tl.dot(x2, y0)
            step = tl.dot(x0, y2, step)
            step = tl.dot(x1, y1, step)
            step = tl.dot(x1, y0, step)
            step = tl.dot(x0, y1, step)
            value += tl.dot(x0, y0, step)  # the matrix units cut what they add: not over all of k
        row = top + tl.arange(0, BLOCK_M)[:, None]
        column = left + tl.arange(0, BLOCK_N)[None, :]
        inside = (row < m) & (column < n)
        at = batch.to(tl.int64) * m * n + row.to(tl.int64) * n + column
        if BIAS:
            value += tl.load(bias + column, mask=column < n, other=0.0).to(tl.float32)
        # kopt: epilogue value
        if TRIANGLE == 1:
            value = tl.where(row <= column, value, 0.0)
        if TRIANGLE == 2:
            value = tl.where(row >= column, value, 0.0)
        if EVEN:
            tl.store(c + at, value)
        else:
            tl.store(c + at, value, mask=inside)


@triton.jit
def gemm_fp32_load(x, batch, row, column, TURNED: tl.constexpr, ROWS: tl.constexpr,
                   COLUMNS: tl.constexpr):
    """Load a tile, which lies TURNED in memory or not."""
    if TURNED:
        tile = tl.trans(tl.reshape(x.load([batch, column, row]), (COLUMNS, ROWS)))
    else:
        tile = tl.reshape(x.load([batch, row, column]), (ROWS, COLUMNS))
    return tile


def gemm_fp32_device(x):
    """Return the multiprocessors, the shared memory of a block, and the parts' dtype."""
    try:
        card = torch.cuda.get_device_properties(x.device)
        return (card.multi_processor_count,
                getattr(card, "shared_memory_per_block_optin", 65536), torch.bfloat16)
    except (AssertionError, RuntimeError, ValueError):
        return 4, 65536, torch.float32  # interpreted, where one part has all bits


def gemm_fp32_parts(x, rows, columns, dtype):
    """Split [batches, rows, columns]; return a descriptor of the parts, and whether it is turned.
    """
    turned = x.stride(2) != 1 and x.stride(1) == 1
    block = [1, columns, rows] if turned else [1, rows, columns]
    x = x.transpose(1, 2) if turned else x
    batches, height, width = x.shape
    pitch = -(-width // 8) * 8
    parts = torch.empty(3 * batches, height, pitch, dtype=dtype, device=x.device)
    tiles = -(-height // 4) * -(-width // 512)
    gemm_fp32_split[(batches * tiles,)](
        x, parts, height, width, pitch, *x.stride(), batches * height * pitch, ROWS=4, COLUMNS=512)
    shape = [3 * batches, height, width]
    return TensorDescriptor(parts, shape, list(parts.stride()), block), turned


def gemm_fp32(
        # kopt: operands
        a, b, bias=None, triangle=""):
    """a @ b + bias for tensors of 2 or more dimensions; triangle: upper or lower part of it."""
    batch = a.shape[:-2]
    if b.dim() > 2 and b.shape[:-2] != batch:
        batch = torch.broadcast_shapes(batch, b.shape[:-2])
    (m, k), n = a.shape[-2:], b.shape[-1]
    c = torch.empty(*batch, m, n, dtype=a.dtype, device=a.device)
    if not c.numel():
        return c
    if b.dim() == 2 and a.dim() > 2:  # one product of many rows
        a = a.reshape(1, -1, k)
        m = a.shape[1]
    batches = c.numel() // (m * n)
    a = (a.expand(*batch, m, k) if batches > 1 else a).reshape(batches, m, k)
    b = (b.expand(*batch, k, n) if batches > 1 else b).reshape(batches, k, n)
    units, shared, dtype = gemm_fp32_device(a)
    rows, columns, depth = GEMM_FP32_M, GEMM_FP32_N, GEMM_FP32_K
    while columns > 64 and (batches * -(-m // rows) * -(-n // columns) < units
                            or rows * columns * 4 > shared):
        columns //= 2
    stages = GEMM_FP32_STAGES
    while stages > 1 and stages * 3 * (rows + columns) * depth * 2 > shared:
        stages -= 1
    one, a_turned = gemm_fp32_parts(a, rows, depth, dtype)
    other, b_turned = gemm_fp32_parts(b, depth, columns, dtype)
    tiles = batches * -(-m // rows) * -(-n // columns)
    gemm_fp32_kernel[(min(units, tiles),)](
        # kopt: operands
        one, other, c, c if bias is None else bias.contiguous(), tiles, batches, m, n, k,
        BIAS=bias is not None, TRIANGLE=("", "upper", "lower").index(triangle),
        EVEN=m % rows == 0 and n % columns == 0, A_TURNED=a_turned, B_TURNED=b_turned,
        BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=depth, GROUP=GEMM_FP32_GROUP,
        num_warps=GEMM_FP32_WARPS, num_stages=stages)
    return c
