"""Products of groups of rows, each group with a matrix of its own: one launch for all groups.

Group g is the rows from ends[g - 1] to ends[g], whose numbers stay on the device: each program
finds its tile's group among them. Rows behind the last end are not written, as by PyTorch.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

GROUPED_GEMM_M = 128  # kopt: knob GROUPED_GEMM_M in [16, 32, 64, 128] most rows of a tile
GROUPED_GEMM_N = 256  # kopt: knob GROUPED_GEMM_N in [32, 64, 128, 256] columns of a tile
GROUPED_GEMM_K = 64  # kopt: knob GROUPED_GEMM_K in [32, 64, 128] depth of a step, in two bytes
GROUPED_GEMM_ORDER = 8  # kopt: knob GROUPED_GEMM_ORDER in [1, 4, 8, 16] tiles that share columns
GROUPED_GEMM_WARPS = 8  # kopt: knob GROUPED_GEMM_WARPS in [4, 8] warps of a tile
GROUPED_GEMM_STAGES = 4  # kopt: knob GROUPED_GEMM_STAGES in [2, 3, 4] steps in flight, or fewer
GROUPED_GEMM_DESCRIBED = 1  # kopt: knob GROUPED_GEMM_DESCRIBED in [0, 1] 1: loads by TMA

# A thread keeps its part of the sums in its 255 registers.
# kopt: require GROUPED_GEMM_M * GROUPED_GEMM_N <= GROUPED_GEMM_WARPS * 32 * 128


@triton.jit
def grouped_gemm_kernel(
        # kopt: operands
        x, weights, ends, y, rows_of_tiles, groups, n, k, xm, xk, wg, wk, wn,
        DESCRIBED: tl.constexpr, TURNED: tl.constexpr, PRECISION: tl.constexpr,
        GROUPS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
        BLOCK_K: tl.constexpr, ORDER: tl.constexpr):
    """TURNED: of a matrix the descriptor has the rows of its transpose."""
    tiles_n = tl.cdiv(n, BLOCK_N)
    tile = tl.program_id(0)
    first = tile // (ORDER * tiles_n) * ORDER
    height = min(rows_of_tiles - first, ORDER)
    place = first + tile % (ORDER * tiles_n) % height
    left = tile % (ORDER * tiles_n) // height * BLOCK_N
    each = tl.arange(0, GROUPS)
    begins = tl.load(ends + each - 1, mask=(each > 0) & (each < groups), other=0)
    tiles = tl.cdiv(tl.load(ends + each, mask=each < groups, other=0) - begins, BLOCK_M)
    tiles = tl.where(each < groups, tiles, 0)
    group = tl.sum((tl.cumsum(tiles, 0) <= place).to(tl.int32), 0)
    if group < groups:
        begin = tl.sum(tl.where(each == group, begins, 0), 0)
        top = begin + (place - tl.sum(tl.where(each < group, tiles, 0), 0)) * BLOCK_M
        row = top + tl.arange(0, BLOCK_M)[:, None]
        column = left + tl.arange(0, BLOCK_N)[None, :]
        inside = (row < tl.load(ends + group)) & (column < n)
        value = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        if DESCRIBED:  # rows of the next group are loaded, and not stored
            for start in range(0, k, BLOCK_K):
                a = x.load([top, start])
                if TURNED:
                    b = tl.trans(tl.reshape(weights.load([group, left, start]),
                                            (BLOCK_N, BLOCK_K)))
                else:
                    b = tl.reshape(weights.load([group, start, left]), (BLOCK_K, BLOCK_N))
                value = tl.dot(a, b, value, input_precision=PRECISION)
        else:
            depth = tl.arange(0, BLOCK_K)
            rows = x + row.to(tl.int64) * xm + depth[None, :].to(tl.int64) * xk
            own = weights + (group.to(tl.int64) * wg + depth[:, None].to(tl.int64) * wk
                             + column.to(tl.int64) * wn)
            across = column < n
            there = row < tl.load(ends + group)
            for start in range(0, k, BLOCK_K):
                a = tl.load(rows, mask=there & (depth[None, :] < k - start), other=0.0)
                b = tl.load(own, mask=(depth[:, None] < k - start) & across, other=0.0)
                value = tl.dot(a, b, value, input_precision=PRECISION)
                rows += BLOCK_K * xk
                own += BLOCK_K * wk
        at = row.to(tl.int64) * n + column
        # kopt: epilogue value
        tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


def grouped_gemm_device(x):
    """Return the backend, its architecture and the shared memory of a block."""
    try:
        target = triton.runtime.driver.active.get_current_target()
        card = torch.cuda.get_device_properties(x.device)
        return (target.backend, target.arch,
                getattr(card, "shared_memory_per_block_optin", 65536))
    except (AssertionError, RuntimeError, ValueError):
        return "", 90, 65536  # interpreted


def grouped_gemm_describe(x, block):
    """Return a descriptor of a tensor whose last dimension is contiguous; None if it cannot."""
    fits = x.stride(-1) == 1 and x.data_ptr() % 16 == 0 and all(
        step > 0 and step * x.element_size() % 16 == 0 for step in x.stride()[:-1])
    return TensorDescriptor(x, list(x.shape), list(x.stride()), block) if fits else None


def grouped_gemm(
        # kopt: operands
        x, weights, ends, dtype=None):
    """x [rows, k], weights [groups, k, n], ends [groups] int32, which do not fall: [rows, n]."""
    (rows, k), (groups, _, n) = x.shape, weights.shape
    y = torch.empty(rows, n, dtype=dtype or x.dtype, device=x.device)
    if not y.numel() or not groups:
        return y
    backend, arch, shared = grouped_gemm_device(x)
    height = max(16, min(GROUPED_GEMM_M, 1 << (-(-rows // groups) - 1).bit_length()))
    width = max(16, min(GROUPED_GEMM_N // (x.element_size() // 2), 1 << (n - 1).bit_length()))
    depth = min(GROUPED_GEMM_K * 2 // x.element_size(), max(16, 1 << (k - 1).bit_length()))
    first, second, turned = x, weights, weights.stride(2) != 1
    described = GROUPED_GEMM_DESCRIBED and backend != "hip" and arch >= 90
    if described:
        first = grouped_gemm_describe(x, [height, depth])
        second = grouped_gemm_describe(*(
            (weights.transpose(1, 2), [1, width, depth]) if turned
            else (weights, [1, depth, width])))
        if first is None or second is None:
            first, second, described = x, weights, False
    rows_of_tiles = rows // height + min(groups, rows)
    grouped_gemm_kernel[(rows_of_tiles * -(-n // width),)](
        # kopt: operands
        first, second, ends.contiguous(), y, rows_of_tiles, groups, n, k, *x.stride(),
        *weights.stride(), DESCRIBED=bool(described), TURNED=turned,
        PRECISION="tf32x3" if backend == "cuda" and x.dtype == torch.float32 else "ieee",
        GROUPS=1 << (groups - 1).bit_length(), BLOCK_M=height, BLOCK_N=width, BLOCK_K=depth,
        ORDER=GROUPED_GEMM_ORDER, num_warps=GROUPED_GEMM_WARPS,
        num_stages=min(GROUPED_GEMM_STAGES,
                       max(1, shared // ((height + width) * depth * x.element_size()))))
    return y
