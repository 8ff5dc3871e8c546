"""Matrix products of any strides, plain or batched, with a bias, split over K where tiles are few.

Float32 operands are multiplied in three TF32 products, whose errors are those of float32. Those of
one byte (e4m3) have scales, of the tensor or of each row and column, which the sums are times. Of
their sums Hopper's units keep 14 bits: those of a step are added up in float32.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

# BLOCK_K counts values of two bytes, and with float32 operands BLOCK_N: half as many are taken.
GEMM_BLOCK_M = 128  # kopt: knob GEMM_BLOCK_M in [32, 64, 128, 256] rows of a tile
GEMM_BLOCK_N = 256  # kopt: knob GEMM_BLOCK_N in [32, 64, 128, 256] columns of a tile
GEMM_BLOCK_K = 64  # kopt: knob GEMM_BLOCK_K in [32, 64, 128] depth of a step
GEMM_GROUP = 8  # kopt: knob GEMM_GROUP in [1, 4, 8, 16] rows of tiles that share b in the cache
GEMM_WARPS = 8  # kopt: knob GEMM_WARPS in [4, 8] warps of a tile
GEMM_STAGES = 4  # kopt: knob GEMM_STAGES in [2, 3, 4, 5] steps in flight; fewer if memory is short
GEMM_PERSISTENT = 1  # kopt: knob GEMM_PERSISTENT in [0, 1] 1: a program takes several tiles
GEMM_DESCRIBED = 1  # kopt: knob GEMM_DESCRIBED in [0, 1] 1: loads by TMA where memory allows
GEMM_SPLIT = 0  # kopt: knob GEMM_SPLIT in [0, 1, 2, 4, 8, 16] parts of K; 0 fills the device
GEMM_DEEP = 16  # kopt: knob GEMM_DEEP in [4, 16, 64] K / max(M, N) from which fp32 uses six BF16
GEMM_FLAT = 128  # kopt: knob GEMM_FLAT in [0, 64, 128] K below which fp32 uses six BF16
GEMM_FP32 = 1  # kopt: knob GEMM_FP32 in [0, 1, 2] float32 by 0 FMA, 1 three TF32, 2 six BF16

# A thread keeps its part of the sums in its 255 registers.
# kopt: require GEMM_BLOCK_M * GEMM_BLOCK_N <= GEMM_WARPS * 32 * 200


@triton.jit
def gemm_scaled(value, row_scale, column_scale, row, column, m, n, SCALED: tl.constexpr):
    """SCALED: 1, and 2 more for a scale of each row, 4 more for one of each column."""
    value *= tl.load(row_scale + row * (SCALED // 2 % 2), mask=row < m, other=0.0)
    return value * tl.load(column_scale + column * (SCALED // 4), mask=column < n, other=0.0)


@triton.jit
def gemm_tile(
        # kopt: operands
        a, b, c, bias, row_scale, column_scale, tile, m, n, k, part_k, parts, am, ak, a_batch,
        bk, bn, b_batch, BIAS: tl.constexpr, SCALED: tl.constexpr, TRIANGLE: tl.constexpr,
        EVEN_MN: tl.constexpr, EVEN_K: tl.constexpr,
        SPLIT: tl.constexpr, DESCRIBED: tl.constexpr, A_TURNED: tl.constexpr,
        B_TURNED: tl.constexpr, PRECISION: tl.constexpr, BLOCK_M: tl.constexpr,
        BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr):
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    place = tile // (tiles_m * tiles_n)
    tile = tile % (tiles_m * tiles_n)
    first = tile // (GROUP * tiles_n) * GROUP
    height = min(tiles_m - first, GROUP)
    top = (first + tile % (GROUP * tiles_n) % height) * BLOCK_M
    left = tile % (GROUP * tiles_n) // height * BLOCK_N
    row = top + tl.arange(0, BLOCK_M)[:, None]
    column = left + tl.arange(0, BLOCK_N)[None, :]
    begin = place % parts * part_k
    length = min(k - begin, part_k)
    if TRIANGLE == 1:  # nothing below the diagonal is computed
        length = tl.where(top >= left + BLOCK_N, 0, length)
    if TRIANGLE == 2:
        length = tl.where(left >= top + BLOCK_M, 0, length)
    value = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    batch = place // parts
    if DESCRIBED:  # what lies outside is loaded as zero
        for start in range(begin, begin + length, BLOCK_K):
            if A_TURNED:
                x = tl.trans(tl.reshape(a.load([batch, start, top]), (BLOCK_K, BLOCK_M)))
            else:
                x = tl.reshape(a.load([batch, top, start]), (BLOCK_M, BLOCK_K))
            if B_TURNED:
                y = tl.trans(tl.reshape(b.load([batch, left, start]), (BLOCK_N, BLOCK_K)))
            else:
                y = tl.reshape(b.load([batch, start, left]), (BLOCK_K, BLOCK_N))
            value = tl.dot(x, y, value, input_precision=PRECISION,
                           max_num_imprecise_acc=BLOCK_K if SCALED else 0)
    else:
        depth = tl.arange(0, BLOCK_K)
        a += (batch.to(tl.int64) * a_batch + row.to(tl.int64) * am
              + (begin + depth[None, :]).to(tl.int64) * ak)
        b += (batch.to(tl.int64) * b_batch + (begin + depth[:, None]).to(tl.int64) * bk
              + column.to(tl.int64) * bn)
        for start in range(0, length, BLOCK_K):
            if EVEN_MN and EVEN_K:
                x = tl.load(a)
                y = tl.load(b)
            elif EVEN_K:
                x = tl.load(a, mask=row < m, other=0.0)
                y = tl.load(b, mask=column < n, other=0.0)
            else:
                x = tl.load(a, mask=(row < m) & (depth[None, :] < length - start), other=0.0)
                y = tl.load(b, mask=(depth[:, None] < length - start) & (column < n), other=0.0)
            value = tl.dot(x, y, value, input_precision=PRECISION,
                           max_num_imprecise_acc=BLOCK_K if SCALED else 0)
            a += BLOCK_K * ak
            b += BLOCK_K * bk
    inside = (row < m) & (column < n)
    at = batch.to(tl.int64) * m * n + row.to(tl.int64) * n + column
    if SPLIT:
        batches = tl.num_programs(0) // (tiles_m * tiles_n * parts)
        c += (place % parts).to(tl.int64) * batches * m * n
    else:
        if SCALED:
            value = gemm_scaled(value, row_scale, column_scale, row, column, m, n, SCALED)
        if BIAS:
            value += tl.load(bias + column, mask=column < n, other=0.0).to(tl.float32)
        # kopt: epilogue value
        if TRIANGLE == 1:
            value = tl.where(row <= column, value, 0.0)
        if TRIANGLE == 2:
            value = tl.where(row >= column, value, 0.0)
    if EVEN_MN:
        tl.store(c + at, value.to(c.dtype.element_ty))
    else:
        tl.store(c + at, value.to(c.dtype.element_ty), mask=inside)


@triton.jit
def gemm_kernel(
        # kopt: operands
        a, b, c, bias, row_scale, column_scale, tiles, m, n, k, part_k, parts, am, ak, a_batch,
        bk, bn, b_batch, BIAS: tl.constexpr, SCALED: tl.constexpr, TRIANGLE: tl.constexpr,
        EVEN_MN: tl.constexpr, EVEN_K: tl.constexpr,
        SPLIT: tl.constexpr, DESCRIBED: tl.constexpr, A_TURNED: tl.constexpr,
        B_TURNED: tl.constexpr, PRECISION: tl.constexpr, PERSISTENT: tl.constexpr,
        BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr):
    if PERSISTENT:
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
            gemm_tile(
                # kopt: operands
                a, b, c, bias, row_scale, column_scale, tile, m, n, k, part_k, parts, am, ak,
                a_batch, bk, bn, b_batch, BIAS, SCALED, TRIANGLE, EVEN_MN, EVEN_K, SPLIT,
                DESCRIBED, A_TURNED, B_TURNED, PRECISION, BLOCK_M, BLOCK_N, BLOCK_K, GROUP)
    else:
        gemm_tile(
            # kopt: operands
            a, b, c, bias, row_scale, column_scale, tl.program_id(0), m, n, k, part_k, parts, am,
            ak, a_batch, bk, bn, b_batch, BIAS, SCALED, TRIANGLE, EVEN_MN, EVEN_K, SPLIT,
            DESCRIBED, A_TURNED, B_TURNED, PRECISION, BLOCK_M, BLOCK_N, BLOCK_K, GROUP)


@triton.jit
def gemm_join(
        # kopt: operands
        partial, c, bias, row_scale, column_scale, size, m, n, parts, BIAS: tl.constexpr,
        SCALED: tl.constexpr, TRIANGLE: tl.constexpr, BLOCK: tl.constexpr):
    """Sum the parts of K."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    row = at // n % m
    column = at % n
    value = tl.zeros([BLOCK], tl.float32)
    partial += at
    for _ in range(0, parts):
        value += tl.load(partial, mask=inside, other=0.0)
        partial += size
    if SCALED:
        value = gemm_scaled(value, row_scale, column_scale, row, column, m, n, SCALED)
    if BIAS:
        value += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    # kopt: epilogue value
    if TRIANGLE == 1:
        value = tl.where(row <= column, value, 0.0)
    if TRIANGLE == 2:
        value = tl.where(row >= column, value, 0.0)
    tl.store(c + at, value.to(c.dtype.element_ty), mask=inside)


def gemm_device(x):
    """Return the backend, its architecture, the multiprocessors, the shared memory of a block."""
    try:
        target = triton.runtime.driver.active.get_current_target()
        card = torch.cuda.get_device_properties(x.device)
        return (target.backend, target.arch, card.multi_processor_count,
                getattr(card, "shared_memory_per_block_optin", 65536))
    except (AssertionError, RuntimeError, ValueError):
        return "", 90, 4, 65536  # interpreted


def gemm_describe(x, rows, columns):
    """Return a descriptor of [batches, rows, columns] and whether it is turned; None if it cannot.
    """
    turned = x.stride(2) != 1
    x = x.transpose(1, 2) if turned else x
    fits = x.stride(2) == 1 and x.data_ptr() % 16 == 0 and all(
        step > 0 and step * x.element_size() % 16 == 0 for step in x.stride()[:2])
    block = [1, columns, rows] if turned else [1, rows, columns]
    return (TensorDescriptor(x, list(x.shape), list(x.stride()), block) if fits else None), turned


def gemm(
        # kopt: operands
        a, b, bias=None, triangle="", dtype=None, row_scale=None, column_scale=None):
    """a @ b + bias for tensors of 2 or more dimensions; triangle: upper or lower part of it.

    With scales it is row_scale * column_scale * (a @ b) + bias.
    """
    batch = a.shape[:-2]
    if b.dim() > 2 and b.shape[:-2] != batch:
        batch = torch.broadcast_shapes(batch, b.shape[:-2])
    (m, k), n = a.shape[-2:], b.shape[-1]
    c = torch.empty(*batch, m, n, dtype=dtype or a.dtype, device=a.device)
    if not c.numel():
        return c
    if b.dim() == 2 and a.dim() > 2:  # one product of many rows
        a = a.reshape(1, -1, k)
        m = a.shape[1]
    batches = c.numel() // (m * n)
    a = (a.expand(*batch, m, k) if batches > 1 else a).reshape(batches, m, k)
    b = (b.expand(*batch, k, n) if batches > 1 else b).reshape(batches, k, n)
    backend, arch, units, shared = gemm_device(a)
    single = a.dtype == torch.float32
    least = 32 if a.element_size() == 1 else 16  # depth of a matrix instruction
    depth = min(GEMM_BLOCK_K * 2 // a.element_size(), max(least, 1 << (k - 1).bit_length()))
    rows, columns = GEMM_BLOCK_M, max(16, GEMM_BLOCK_N // (2 if single else 1))
    deep, flat = single and k >= GEMM_DEEP * max(m, n), single and k < GEMM_FLAT
    rows = min(rows, 64 if deep else rows, max(16, 1 << (m - 1).bit_length()))
    columns = min(columns, 64 if flat else columns, max(16, 1 << (n - 1).bit_length()))
    while (rows * columns > 64 * 64
           and 2 * batches * -(-m // rows) * -(-n // columns) <= units
           and k < 4096):
        rows, columns = (rows, columns // 2) if columns >= rows else (rows // 2, columns)
    while depth > least and 2 * (rows + columns) * depth * a.element_size() > shared:
        depth //= 2
    tiles = batches * -(-m // rows) * -(-n // columns)
    parts = GEMM_SPLIT or max(1, min(2 * units // tiles, k // (8 * depth)))
    if triangle:
        parts = 1
    part_k = -(-k // (parts * depth)) * depth
    parts = -(-k // part_k)
    stages = min(3 if deep else GEMM_STAGES,
                 max(1, shared // ((rows + columns) * depth * a.element_size())))
    partial = c if parts == 1 else torch.empty(parts, *c.shape, dtype=torch.float32,
                                               device=c.device)
    precision = ("ieee", "tf32x3", "bf16x6")[
        0 if not single or backend == "hip" else
        2 if (deep or flat) and GEMM_FP32 and backend else GEMM_FP32]
    persistent = GEMM_PERSISTENT and not flat and parts == 1 and tiles > units
    scaled = 0 if row_scale is None else (
        1 + 2 * (row_scale.numel() > 1) + 4 * (column_scale.numel() > 1))
    flags = dict(BIAS=bias is not None, SCALED=scaled,
                 TRIANGLE=("", "upper", "lower").index(triangle))
    scales = (row_scale.contiguous(), column_scale.contiguous()) if scaled else (c, c)
    bias = c if bias is None else bias.contiguous()
    (one, a_turned), (other, b_turned) = gemm_describe(a, rows, depth), gemm_describe(
        b, depth, columns)
    described = (GEMM_DESCRIBED and not deep and backend != "hip" and arch >= 90
                 and one is not None and other is not None)
    gemm_kernel[(units if persistent else tiles * parts,)](
        # kopt: operands
        one if described else a, other if described else b, partial, bias, *scales, tiles, m, n, k,
        part_k, parts, a.stride(1), a.stride(2), a.stride(0), b.stride(1), b.stride(2), b.stride(0),
        EVEN_MN=m % rows == 0 and n % columns == 0, EVEN_K=k % (parts * depth) == 0,
        SPLIT=parts > 1, DESCRIBED=described, A_TURNED=a_turned, B_TURNED=b_turned,
        PRECISION=precision, PERSISTENT=persistent, BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=depth,
        GROUP=GEMM_GROUP, num_stages=stages,
        num_warps=GEMM_WARPS if rows * columns > 64 * 64 and not (deep or flat) else 4, **flags)
    if parts > 1:
        gemm_join[(-(-c.numel() // 1024),)](
            # kopt: operands
            partial, c, bias, *scales, c.numel(), m, n, parts, BLOCK=1024, **flags)
    return c
