"""Stream-K: products whose last wave of tiles is cut along K, evenly over all multiprocessors.

A program takes whole tiles as long as there is one for each program. The steps of the tiles that
remain stand in one row, of which it takes its share: the end of one tile, the begin of the next.
It writes these sums to places of its own; a second launch adds them up, in the order of K.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

GEMM_STREAM_M = 128  # kopt: knob GEMM_STREAM_M in [64, 128, 256] rows of a tile
GEMM_STREAM_N = 256  # kopt: knob GEMM_STREAM_N in [64, 128, 256] columns of a tile
GEMM_STREAM_K = 64  # kopt: knob GEMM_STREAM_K in [32, 64, 128] depth of a step
GEMM_STREAM_GROUP = 8  # kopt: knob GEMM_STREAM_GROUP in [1, 4, 8] tiles' rows that share b
GEMM_STREAM_WARPS = 8  # kopt: knob GEMM_STREAM_WARPS in [4, 8] warps of a tile
GEMM_STREAM_STAGES = 4  # kopt: knob GEMM_STREAM_STAGES in [2, 3, 4] steps in flight

# A thread keeps its part of the sums in its 255 registers.
# kopt: require GEMM_STREAM_M * GEMM_STREAM_N <= GEMM_STREAM_WARPS * 32 * 200


@triton.jit
def gemm_stream_place(tile, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                      GROUP: tl.constexpr):
    """Return a tile's first row and column."""
    tiles_n = tl.cdiv(n, BLOCK_N)
    first = tile // (GROUP * tiles_n) * GROUP
    height = min(tl.cdiv(m, BLOCK_M) - first, GROUP)
    return ((first + tile % (GROUP * tiles_n) % height) * BLOCK_M,
            tile % (GROUP * tiles_n) // height * BLOCK_N)


@triton.jit
def gemm_stream_sum(
        a, b, top, left, begin, length, m, n, am, ak, bk, bn, EVEN: tl.constexpr,
        DESCRIBED: tl.constexpr, A_TURNED: tl.constexpr, B_TURNED: tl.constexpr,
        BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Return the sum over a part of K."""
    value = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    if DESCRIBED:  # what lies outside is loaded as zero
        for start in range(begin, begin + length, BLOCK_K):
            x = tl.trans(a.load([start, top])) if A_TURNED else a.load([top, start])
            y = tl.trans(b.load([left, start])) if B_TURNED else b.load([start, left])
            value = tl.dot(x, y, value)
    else:
        row = top + tl.arange(0, BLOCK_M)[:, None]
        column = left + tl.arange(0, BLOCK_N)[None, :]
        depth = tl.arange(0, BLOCK_K)
        a += row.to(tl.int64) * am + (begin + depth[None, :]).to(tl.int64) * ak
        b += (begin + depth[:, None]).to(tl.int64) * bk + column.to(tl.int64) * bn
        for start in range(0, length, BLOCK_K):
            if EVEN:
                x = tl.load(a)
                y = tl.load(b)
            else:
                x = tl.load(a, mask=(row < m) & (depth[None, :] < length - start), other=0.0)
                y = tl.load(b, mask=(depth[:, None] < length - start) & (column < n), other=0.0)
            value = tl.dot(x, y, value)
            a += BLOCK_K * ak
            b += BLOCK_K * bk
    return value


@triton.jit
def gemm_stream_kernel(
        # kopt: operands
        a, b, c, bias, partial, m, n, k, whole, steps, total, share, am, ak, bk, bn,
        BIAS: tl.constexpr, EVEN: tl.constexpr, DESCRIBED: tl.constexpr, A_TURNED: tl.constexpr,
        B_TURNED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
        BLOCK_K: tl.constexpr, GROUP: tl.constexpr):
    """Compute whole tiles, then a share of the steps of the others."""
    unit = tl.program_id(0)
    for tile in tl.range(unit, whole, tl.num_programs(0)):
        top, left = gemm_stream_place(tile, m, n, BLOCK_M, BLOCK_N, GROUP)
        value = gemm_stream_sum(a, b, top, left, 0, k, m, n, am, ak, bk, bn, EVEN, DESCRIBED,
                                A_TURNED, B_TURNED, BLOCK_M, BLOCK_N, BLOCK_K)
        row = top + tl.arange(0, BLOCK_M)[:, None]
        column = left + tl.arange(0, BLOCK_N)[None, :]
        inside = (row < m) & (column < n)
        at = row.to(tl.int64) * n + column
        if BIAS:
            value += tl.load(bias + column, mask=column < n, other=0.0).to(tl.float32)
        # kopt: epilogue value
        tl.store(c + at, value.to(c.dtype.element_ty), mask=inside)
    step = unit * share
    end = min(step + share, total)
    own = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    for piece in tl.range(2 * unit, 2 * unit + 2):
        if step < end:
            top, left = gemm_stream_place(whole + step // steps, m, n, BLOCK_M, BLOCK_N, GROUP)
            count = min(steps - step % steps, end - step)
            begin = step % steps * BLOCK_K
            value = gemm_stream_sum(
                a, b, top, left, begin, min(count * BLOCK_K, k - begin), m, n, am, ak, bk, bn,
                EVEN, DESCRIBED, A_TURNED, B_TURNED, BLOCK_M, BLOCK_N, BLOCK_K)
            tl.store(partial + piece * BLOCK_M * BLOCK_N + own, value)
            step += count


@triton.jit
def gemm_stream_join(
        # kopt: operands
        c, bias, partial, m, n, whole, steps, share, BIAS: tl.constexpr, BLOCK_M: tl.constexpr,
        BLOCK_N: tl.constexpr, GROUP: tl.constexpr, HEIGHT: tl.constexpr):
    """Add up the pieces of some rows of a tile: a program's second one if it began in another."""
    tile = tl.program_id(0)
    top, left = gemm_stream_place(whole + tile, m, n, BLOCK_M, BLOCK_N, GROUP)
    place = tl.program_id(1) * HEIGHT + tl.arange(0, HEIGHT)[:, None]
    own = place * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    value = tl.zeros([HEIGHT, BLOCK_N], tl.float32)
    for unit in range(tile * steps // share, ((tile + 1) * steps - 1) // share + 1):
        piece = 2 * unit + (unit * share // steps != tile).to(tl.int32)
        value += tl.load(partial + piece * BLOCK_M * BLOCK_N + own)
    row = top + place
    column = left + tl.arange(0, BLOCK_N)[None, :]
    inside = (row < m) & (column < n)
    at = row.to(tl.int64) * n + column
    if BIAS:
        value += tl.load(bias + column, mask=column < n, other=0.0).to(tl.float32)
    # kopt: epilogue value
    tl.store(c + at, value.to(c.dtype.element_ty), mask=inside)


def gemm_stream_device(x):
    """Return the multiprocessors, the shared memory of a block, and whether it has TMA."""
    try:
        target = triton.runtime.driver.active.get_current_target()
        card = torch.cuda.get_device_properties(x.device)
        return (card.multi_processor_count, getattr(card, "shared_memory_per_block_optin", 65536),
                target.backend == "cuda" and target.arch >= 90)
    except (AssertionError, RuntimeError, ValueError):
        return 4, 65536, False  # interpreted


def gemm_stream_describe(x, rows, columns):
    """Return a descriptor and whether it is turned; None if it cannot be."""
    turned = x.stride(1) != 1
    x = x.t() if turned else x
    fits = x.stride(1) == 1 and x.data_ptr() % 16 == 0 and x.stride(0) > 0 \
        and x.stride(0) * x.element_size() % 16 == 0
    block = [columns, rows] if turned else [rows, columns]
    return (TensorDescriptor(x, list(x.shape), list(x.stride()), block) if fits else None), turned


def gemm_stream(
        # kopt: operands
        a, b, bias=None):
    """a @ b + bias for matrices."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    if not c.numel():
        return c
    units, shared, described = gemm_stream_device(a)
    rows, columns, depth = GEMM_STREAM_M, GEMM_STREAM_N, GEMM_STREAM_K
    while rows * columns * 4 > shared:  # pieces are stored by way of it
        columns //= 2
    while depth > 16 and 2 * (rows + columns) * depth * a.element_size() > shared:
        depth //= 2
    tiles, steps = -(-m // rows) * -(-n // columns), max(1, -(-k // depth))
    whole = tiles // units * units
    total = (tiles - whole) * steps
    share = max(1, -(-total // units))
    partial = torch.empty(2 * units if total else 0, rows, columns, dtype=torch.float32,
                          device=a.device)
    one, a_turned = gemm_stream_describe(a, rows, depth)
    other, b_turned = gemm_stream_describe(b, depth, columns)
    described = described and one is not None and other is not None
    bias_or_c = c if bias is None else bias.contiguous()
    gemm_stream_kernel[(units,)](
        # kopt: operands
        one if described else a, other if described else b, c, bias_or_c, partial, m, n, k, whole,
        steps, total, share, *a.stride(), *b.stride(), BIAS=bias is not None,
        EVEN=m % rows == 0 and n % columns == 0 and k % depth == 0, DESCRIBED=described,
        A_TURNED=a_turned, B_TURNED=b_turned, BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=depth,
        GROUP=GEMM_STREAM_GROUP, num_warps=GEMM_STREAM_WARPS,
        num_stages=min(GEMM_STREAM_STAGES, shared // ((rows + columns) * depth * a.element_size())))
    if total:
        gemm_stream_join[(tiles - whole, rows // 16)](
            # kopt: operands
            c, bias_or_c, partial, m, n, whole, steps, share, BIAS=bias is not None, BLOCK_M=rows,
            BLOCK_N=columns, GROUP=GEMM_STREAM_GROUP, HEIGHT=16)
    return c
