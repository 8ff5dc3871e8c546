"""Logarithm of the sum of exponentials over dimensions, in one read, without moving them."""

import torch
import triton
import triton.language as tl

LOGSUMEXP_BLOCK = 2048  # kopt: knob LOGSUMEXP_BLOCK in [512, 1024, 2048, 4096, 8192] at a time
LOGSUMEXP_LANES = 64  # kopt: knob LOGSUMEXP_LANES in [32, 64, 128] neighbours in memory
LOGSUMEXP_PER_THREAD = 16  # kopt: knob LOGSUMEXP_PER_THREAD in [4, 8, 16, 32] values of a thread


@triton.jit
def logsumexp_kernel(
        # kopt: operands
        x, y, outer, n, inner, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, LANES: tl.constexpr):
    """LANES rows of [outer, n, inner], or LANES neighbours of COLUMNS, DEPTH values at a time."""
    if COLUMNS:
        blocks = tl.cdiv(inner, LANES)
        row = (tl.program_id(0) // blocks).to(tl.int64)
        lane = tl.program_id(0) % blocks * LANES + tl.arange(0, LANES)[None, :]
        known = lane < inner
        result = row * inner + lane
        base = row * n * inner + lane
        step = tl.arange(0, DEPTH)[:, None]
    else:
        result = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)[:, None]
        known = result < outer
        base = result * n
        step = tl.arange(0, DEPTH)[None, :]
    AXIS: tl.constexpr = 0 if COLUMNS else 1
    top = tl.full([DEPTH, LANES] if COLUMNS else [LANES, DEPTH],
                  -3.4028234663852886e38, tl.float32)
    total = tl.zeros([DEPTH, LANES] if COLUMNS else [LANES, DEPTH], tl.float32)
    for start in range(0, n, DEPTH):
        i = start + step
        inside = (i < n) & known
        at = base + i.to(tl.int64) * inner
        value = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
        # kopt: prologue value
        value = tl.where(inside, value, -float("inf"))
        higher = tl.maximum(top, value)
        total *= tl.exp2((top - higher) * 1.4426950408889634)
        total += tl.exp2((value - higher) * 1.4426950408889634)
        top = higher
    most = tl.max(top, AXIS, keep_dims=True)
    total = tl.sum(total * tl.exp2((top - most) * 1.4426950408889634), AXIS, keep_dims=True)
    value = most + tl.log(total)
    at = result
    inside = known
    # kopt: epilogue value
    tl.store(y + at, value, mask=inside)


def logsumexp(
        # kopt: operands
        x, dim, keepdim=False):
    """dim: one, or several that lie side by side."""
    rank = x.dim()
    dims = {d % rank for d in ([dim] if isinstance(dim, int) else dim)}
    shape = [1 if d in dims else size for d, size in enumerate(x.shape) if keepdim or d not in dims]
    first, last = min(dims), max(dims) + 1
    x = x.contiguous()
    outer, n, inner = (x.shape[:first].numel(), x.shape[first:last].numel(),
                       x.shape[last:].numel())
    y = torch.empty(shape, dtype=x.dtype, device=x.device)
    if not y.numel():
        return y
    if inner > 1:
        lanes = min(LOGSUMEXP_LANES, 1 << (inner - 1).bit_length())
        depth = min(max(1, LOGSUMEXP_BLOCK // lanes), 1 << (n - 1).bit_length())
        programs = outer * -(-inner // lanes)
    else:
        depth = min(LOGSUMEXP_BLOCK, 1 << (n - 1).bit_length())
        lanes = min(LOGSUMEXP_BLOCK // depth, 1 << (outer - 1).bit_length())
        programs = -(-outer // lanes)
    logsumexp_kernel[(programs,)](
        # kopt: operands
        x, y, outer, n, inner, COLUMNS=inner > 1, DEPTH=depth, LANES=lanes,
        num_warps=max(1, min(16, depth * lanes // (32 * LOGSUMEXP_PER_THREAD))))
    return y
