"""Product of two float16 matrices, row-major, accumulated in float32."""

import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({}, num_warps=4, num_stages=2),
        triton.Config({}, num_warps=4, num_stages=4),
        triton.Config({}, num_warps=8, num_stages=3),
    ],
    key=["m", "n", "k"],
)
@triton.jit
def matmul_kernel(
    a,
    b,
    c,
    m,
    n,
    k,
    BLOCK_M: tl.constexpr = 32,  # kopt: knob BLOCK_M in [16, 32, 64, 128, 256] rows of a tile of c
    BLOCK_N: tl.constexpr = 32,  # kopt: knob BLOCK_N in [16, 32, 64, 128, 256] columns of a tile
    BLOCK_K: tl.constexpr = 32,  # kopt: knob BLOCK_K in [16, 32, 64, 128] depth of one step
    GROUP_M: tl.constexpr = 1,  # kopt: knob GROUP_M in [1, 2, 4, 8, 16] rows of tiles that share b
):
    tile = tl.program_id(0)
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    first_m = group * GROUP_M
    height = min(tiles_m - first_m, GROUP_M)
    tile_m = first_m + (tile % (GROUP_M * tiles_n)) % height
    tile_n = (tile % (GROUP_M * tiles_n)) // height

    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a += rows[:, None] * k + depth[None, :]
    b += depth[:, None] * n + columns[None, :]

    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, k, BLOCK_K):
        left = tl.load(a, mask=(rows[:, None] < m) & (depth[None, :] + step < k), other=0.0)
        right = tl.load(b, mask=(depth[:, None] + step < k) & (columns[None, :] < n), other=0.0)
        sums = tl.dot(left, right, sums)
        a += BLOCK_K
        b += BLOCK_K * n

    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], sums.to(tl.float16), mask=inside)


def matmul(a, b, c):
    m, k = a.shape
    n = b.shape[1]

    def grid(meta):
        return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

    matmul_kernel[grid](a, b, c, m, n, k)
