"""Cross-entropy of rows of logits with class indices: one read, no probabilities in memory."""

import torch
import triton
import triton.language as tl

CROSS_ENTROPY_BLOCK = 8192  # kopt: knob CROSS_ENTROPY_BLOCK in [1024, 2048, 4096, 8192] of a row
CROSS_ENTROPY_WARPS = 16  # kopt: knob CROSS_ENTROPY_WARPS in [4, 8, 16] warps of a program
CROSS_ENTROPY_PROGRAMS = 1024  # kopt: knob CROSS_ENTROPY_PROGRAMS in [512, 1024, 2048, 4096]
CROSS_ENTROPY_STAGES = 1  # kopt: knob CROSS_ENTROPY_STAGES in [1, 2, 3] loads in flight


@triton.jit
def cross_entropy_chosen(
        # kopt: operands
        x, place, counts):
    at = place + tl.zeros([1, 1], tl.int64)
    inside = counts & (at >= 0)
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    # kopt: prologue value
    return value


@triton.jit
def cross_entropy_rows(
        # kopt: operands
        x, target, losses, totals, rows, n, inner, ignored, smoothing, EACH: tl.constexpr,
        DEPTH: tl.constexpr, WIDTH: tl.constexpr, STAGES: tl.constexpr):
    """Rows in turn: the sum of a program's losses and how many rows count; or EACH loss."""
    one = tl.zeros([1, 1], tl.int32)
    whole = tl.zeros([1, 1], tl.float32)
    counted = tl.zeros([1, 1], tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        loss, counts = cross_entropy_row(
            # kopt: operands
            x, target, row, n, inner, ignored, smoothing, DEPTH, WIDTH, STAGES)
        if EACH:
            tl.store(losses + row + one, loss)
        whole += loss
        counted += tl.where(counts, 1.0, 0.0)
    tl.store(totals + tl.program_id(0) * 2 + one, whole)
    tl.store(totals + tl.program_id(0) * 2 + 1 + one, counted)


@triton.jit
def cross_entropy_row(
        # kopt: operands
        x, target, row, n, inner, ignored, smoothing, DEPTH: tl.constexpr, WIDTH: tl.constexpr,
        STAGES: tl.constexpr):
    """Return the loss of a row, and whether it counts."""
    base = (row // inner).to(tl.int64) * n * inner + row % inner
    wanted = tl.load(target + row)
    counts = wanted != ignored
    chosen = cross_entropy_chosen(
        # kopt: operands
        x, base + wanted * inner, counts)
    step = tl.arange(0, DEPTH)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    top = tl.full([1, WIDTH], -3.4028234663852886e38, tl.float32)  # finite: -inf - -inf is NaN
    total = tl.zeros([1, WIDTH], tl.float32)
    plain = tl.zeros([1, WIDTH], tl.float32)
    for start in tl.range(0, n, DEPTH * WIDTH, num_stages=STAGES):
        i = start + step
        inside = i < n
        at = base + i.to(tl.int64) * inner
        value = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
        # kopt: prologue value
        value = tl.where(inside, value, -float("inf"))
        higher = tl.maximum(top, tl.max(value, 0, keep_dims=True))
        powers = tl.exp2((value - higher) * 1.4426950408889634)
        total = total * tl.exp2((top - higher) * 1.4426950408889634) + tl.sum(
            powers, 0, keep_dims=True)
        plain += tl.sum(tl.where(inside, value, 0.0), 0, keep_dims=True)
        top = higher
    most = tl.max(top, 1, keep_dims=True)
    total = tl.sum(total * tl.exp2((top - most) * 1.4426950408889634), 1, keep_dims=True)
    log_sum = most + tl.log(total)
    mean = tl.sum(plain, 1, keep_dims=True) / n
    loss = log_sum - (1.0 - smoothing) * chosen - smoothing * mean
    return tl.where(counts, loss, 0.0), counts


@triton.jit
def cross_entropy_join(totals, y, programs, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    result = tl.sum(tl.load(totals + i * 2, mask=i < programs, other=0.0), 0)
    if MEAN:
        result /= tl.sum(tl.load(totals + i * 2 + 1, mask=i < programs, other=0.0), 0)
    tl.store(y, result)


def cross_entropy(
        # kopt: operands
        x, target, reduction="mean", ignore_index=-100, label_smoothing=0.0):
    """Logits [rows, classes, ...] and class indices [rows, ...]; reduction: mean, sum or none."""
    x, target = x.contiguous(), target.contiguous()
    n, inner = (x.shape[1], x.shape[2:].numel()) if x.dim() > 1 else (x.shape[0], 1)
    rows, width = target.numel(), 1 << (n - 1).bit_length()
    block = min(CROSS_ENTROPY_BLOCK, max(16, width))
    warps = max(1, min(CROSS_ENTROPY_WARPS, block // 512))  # a thread has four values of a step
    programs = min(rows, CROSS_ENTROPY_PROGRAMS * CROSS_ENTROPY_WARPS // warps)
    totals = torch.empty(programs, 2, dtype=torch.float32, device=x.device)
    losses = torch.empty(target.shape if reduction == "none" else 0, dtype=x.dtype,
                         device=x.device)
    cross_entropy_rows[(programs,)](
        # kopt: operands
        x, target, losses, totals, rows, n, inner, ignore_index, label_smoothing,
        EACH=reduction == "none", DEPTH=4, WIDTH=block // 4, STAGES=CROSS_ENTROPY_STAGES,
        num_warps=warps)
    if reduction == "none":
        return losses
    y = torch.empty((), dtype=x.dtype, device=x.device)
    cross_entropy_join[(1,)](totals, y, programs, MEAN=reduction == "mean",
                             BLOCK=1 << (programs - 1).bit_length(), num_warps=8)
    return y
