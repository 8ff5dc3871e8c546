"""Product of two bfloat16 matrices, row-major, accumulated in float32.

Two knobs select one of four kernels. Tiles are loaded through pointers or, where rows start at
multiples of 16 bytes, through tensor-memory-accelerator descriptors. Each tile has its own program,
or one persistent program per multiprocessor takes tiles in turn.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

BLOCK_M = 32  # kopt: knob BLOCK_M in [32, 64, 128, 256] rows of a tile of c
BLOCK_N = 32  # kopt: knob BLOCK_N in [32, 64, 128, 256] columns of a tile
BLOCK_K = 32  # kopt: knob BLOCK_K in [32, 64, 128] depth of one step
GROUP_M = 1  # kopt: knob GROUP_M in [1, 2, 4, 8, 16] rows of tiles that share b in the cache
NUM_WARPS = 4  # kopt: knob NUM_WARPS in [4, 8] warps that share a tile
NUM_STAGES = 2  # kopt: knob NUM_STAGES in [2, 3, 4, 5] steps in flight
DESCRIPTOR = 0  # kopt: knob DESCRIPTOR in [0, 1] 1: loads and stores whole tiles by TMA
PERSISTENT = 0  # kopt: knob PERSISTENT in [0, 1] 1: a program takes several tiles
FLATTEN = 0  # kopt: knob FLATTEN in [0, 1] 1: a tile's first loads during the last one's products
SPLIT = 0  # kopt: knob SPLIT in [0, 1] 1: a tile is stored in halves, through half the memory

# Shared memory holds every step in flight; 227 KiB a block is the most that any card has.
# kopt: require (BLOCK_M + BLOCK_N) * BLOCK_K * 2 * NUM_STAGES <= 232448 or BLOCK_M < 64
# A thread keeps its part of the sums in its 255 registers.
# kopt: require BLOCK_M * BLOCK_N <= NUM_WARPS * 32 * 255
# These do nothing elsewhere.
# kopt: require FLATTEN <= PERSISTENT and SPLIT <= DESCRIPTOR


@triton.jit
def corner(tile, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Return the first row and column of a tile; tiles are ordered in groups of GROUP_M rows."""
    tiles_m = tl.cdiv(m, BLOCK_M)
    group = GROUP_M * tl.cdiv(n, BLOCK_N)
    first = tile // group * GROUP_M
    height = min(tiles_m - first, GROUP_M)
    tile_m = first + tile % group % height
    return tile_m * BLOCK_M, tile % group // height * BLOCK_N


@triton.jit
def by_pointers(a, b, c, tile, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, MASKED: tl.constexpr):
    top, left = corner(tile, m, n, BLOCK_M, BLOCK_N, GROUP_M)
    rows = top + tl.arange(0, BLOCK_M)
    columns = left + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a += rows[:, None] * k + depth[None, :]
    b += depth[:, None] * n + columns[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, tl.cdiv(k, BLOCK_K)):
        if MASKED:
            inside = depth < k - step * BLOCK_K
            x = tl.load(a, mask=(rows[:, None] < m) & inside[None, :], other=0.0)
            y = tl.load(b, mask=inside[:, None] & (columns[None, :] < n), other=0.0)
        else:
            x = tl.load(a)
            y = tl.load(b)
        sums = tl.dot(x, y, sums)
        a += BLOCK_K
        b += BLOCK_K * n
    c += rows[:, None] * n + columns[None, :]
    if MASKED:
        tl.store(c, sums.to(c.dtype.element_ty),
                 mask=(rows[:, None] < m) & (columns[None, :] < n))
    else:
        tl.store(c, sums.to(c.dtype.element_ty))


@triton.jit
def by_descriptors(a, b, c, tile, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                   BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SPLIT: tl.constexpr):
    top, left = corner(tile, m, n, BLOCK_M, BLOCK_N, GROUP_M)
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, tl.cdiv(k, BLOCK_K)):  # what lies outside is loaded as zero
        x = a.load([top, step * BLOCK_K])
        y = b.load([step * BLOCK_K, left])
        sums = tl.dot(x, y, sums)
    if SPLIT:
        halves = tl.permute(tl.reshape(sums, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
        one, other = tl.split(halves)
        c.store([top, left], one.to(c.dtype))
        c.store([top, left + BLOCK_N // 2], other.to(c.dtype))
    else:
        c.store([top, left], sums.to(c.dtype))


@triton.jit
def matmul_kernel(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                  BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, MASKED: tl.constexpr,
                  PERSISTENT: tl.constexpr, FLATTEN: tl.constexpr):
    if PERSISTENT:
        tiles = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
            by_pointers(a, b, c, tile, m, n, k, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, MASKED)
    else:
        by_pointers(a, b, c, tl.program_id(0), m, n, k, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, MASKED)


@triton.jit
def descriptor_kernel(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                      BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SPLIT: tl.constexpr,
                      PERSISTENT: tl.constexpr, FLATTEN: tl.constexpr):
    if PERSISTENT:
        tiles = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
            by_descriptors(a, b, c, tile, m, n, k, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, SPLIT)
    else:
        by_descriptors(a, b, c, tl.program_id(0), m, n, k, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M,
                       SPLIT)


def processors(tensor):
    try:
        return torch.cuda.get_device_properties(tensor.device).multi_processor_count
    except (AssertionError, RuntimeError, ValueError):
        return 4  # interpreted


def tile_of(m, n, available):
    """Return the rows and columns of a tile, smaller if the product cannot fill the GPU."""
    rows, columns = BLOCK_M, BLOCK_N
    while (rows * columns > 64 * 64
           and 4 * triton.cdiv(m, rows) * triton.cdiv(n, columns) < 3 * available):
        if columns >= rows:
            columns //= 2
        else:
            rows //= 2
    return rows, columns


def matmul(a, b, c):
    m, k = a.shape
    n = b.shape[1]
    available = processors(a)
    rows, columns = tile_of(m, n, available)
    tiles = triton.cdiv(m, rows) * triton.cdiv(n, columns)
    grid = (min(tiles, available) if PERSISTENT else tiles,)
    sizes = dict(BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M,
                 PERSISTENT=PERSISTENT, FLATTEN=FLATTEN, num_warps=NUM_WARPS,
                 num_stages=NUM_STAGES)
    if DESCRIPTOR and k * a.element_size() % 16 == 0 and n * b.element_size() % 16 == 0:
        descriptor_kernel[grid](
            TensorDescriptor.from_tensor(a, [rows, BLOCK_K]),
            TensorDescriptor.from_tensor(b, [BLOCK_K, columns]),
            TensorDescriptor.from_tensor(c, [rows, columns // 2 if SPLIT else columns]),
            m, n, k, SPLIT=SPLIT, **sizes)
    else:
        even = m % rows == 0 and n % columns == 0 and k % BLOCK_K == 0
        matmul_kernel[grid](a, b, c, m, n, k, MASKED=not even, **sizes)
