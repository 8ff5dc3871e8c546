"""Cumulative sum or product along a dimension, also from its end, exclusive, or masked."""

import torch
import triton
import triton.language as tl

SCAN_BLOCK = 8192  # kopt: knob SCAN_BLOCK in [512, 1024, 2048, 4096, 8192] values of a step
SCAN_LANES = 64  # kopt: knob SCAN_LANES in [32, 64, 128] neighbours in memory of inner dimensions
SCAN_WARPS = 8  # kopt: knob SCAN_WARPS in [2, 4, 8, 16] warps of a program
SCAN_STAGES = 2  # kopt: knob SCAN_STAGES in [1, 2, 3] loads in flight


@triton.jit
def scan_kernel(
        # kopt: operands
        x, mask, y, outer, n, inner, PRODUCT: tl.constexpr, REVERSE: tl.constexpr,
        EXCLUSIVE: tl.constexpr, MASKED: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
        LANES: tl.constexpr, STAGES: tl.constexpr):
    """A program scans LANES rows, or LANES neighbours of COLUMNS, DEPTH values at a time."""
    if COLUMNS:
        blocks = tl.cdiv(inner, LANES)
        lane = tl.program_id(0) % blocks * LANES + tl.arange(0, LANES)[None, :]
        known = lane < inner
        base = (tl.program_id(0) // blocks).to(tl.int64) * n * inner + lane
        step = tl.arange(0, DEPTH)[:, None]
    else:
        row = tl.program_id(0) * LANES + tl.arange(0, LANES)[:, None]
        known = row < outer
        base = row.to(tl.int64) * n
        step = tl.arange(0, DEPTH)[None, :]
    AXIS: tl.constexpr = 0 if COLUMNS else 1
    NEUTRAL: tl.constexpr = 1.0 if PRODUCT else 0.0
    steps = tl.cdiv(n, DEPTH)
    before = tl.full([1, LANES] if COLUMNS else [LANES, 1], NEUTRAL, tl.float32)
    for number in tl.range(0, steps, num_stages=STAGES):
        i = (steps - 1 - number if REVERSE else number) * DEPTH + step
        inside = (i < n) & known
        at = base + i.to(tl.int64) * inner
        value = tl.load(x + at, mask=inside, other=NEUTRAL).to(tl.float32)
        # kopt: prologue value
        if MASKED:
            value *= tl.load(mask + at, mask=inside, other=0).to(tl.float32)
        value = tl.where(inside, value, NEUTRAL)
        if PRODUCT:
            value = tl.cumprod(value, AXIS, reverse=REVERSE) * before
        else:
            value = tl.cumsum(value, AXIS, reverse=REVERSE) + before
        last = step == (0 if REVERSE else DEPTH - 1)
        before = tl.sum(tl.where(last, value, 0.0), AXIS, keep_dims=True)
        if EXCLUSIVE:
            i += -1 if REVERSE else 1
            inside = (i >= 0) & (i < n) & known
            at = base + i.to(tl.int64) * inner
            tl.store(y + at, value, mask=inside)
            end = (i == (n if not REVERSE else -1)) & known  # the place that no value moved to
            at = base + (n - 1 if REVERSE else 0) * inner + tl.zeros_like(i)
            tl.store(y + at, NEUTRAL, mask=end)
        else:
            # kopt: epilogue value
            tl.store(y + at, value, mask=inside)


def scan(
        # kopt: operands
        x, dim, op="sum", reverse=False, exclusive=False, mask=None, dtype=None):
    """op: sum or prod. mask has x's shape: what it excludes counts as zero."""
    x = x.contiguous()
    y = torch.empty_like(x, dtype=dtype)
    if not x.numel() or not x.dim():
        return y.copy_(x)
    dim %= x.dim()
    outer, n, inner = x.shape[:dim].numel(), x.shape[dim], x.shape[dim + 1:].numel()
    if inner > 1:
        lanes = min(SCAN_LANES, 1 << (inner - 1).bit_length())
        depth = min(SCAN_BLOCK // lanes, 1 << (n - 1).bit_length())
        programs = outer * -(-inner // lanes)
    else:
        depth = min(SCAN_BLOCK, 1 << (n - 1).bit_length())
        lanes = min(max(1, 1024 // depth), 1 << (outer - 1).bit_length())
        programs = -(-outer // lanes)
    scan_kernel[(programs,)](
        # kopt: operands
        x, x if mask is None else mask.expand_as(x).contiguous(), y, outer, n, inner,
        PRODUCT=op == "prod", REVERSE=reverse, EXCLUSIVE=exclusive, MASKED=mask is not None,
        COLUMNS=inner > 1, DEPTH=depth, LANES=lanes, STAGES=SCAN_STAGES,
        num_warps=max(1, min(SCAN_WARPS, depth * lanes // 64)))
    return y
