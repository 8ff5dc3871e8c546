"""Cross-entropy of rows of logits with class indices: one read, no probabilities in memory."""

import torch
import triton
import triton.language as tl

CROSS_ENTROPY_BLOCK = 4096  # kopt: knob CROSS_ENTROPY_BLOCK in [1024, 2048, 4096, 8192] of a row
CROSS_ENTROPY_WARPS = 8  # kopt: knob CROSS_ENTROPY_WARPS in [4, 8, 16] warps of a program
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
        x, target, losses, n, inner, ignored, smoothing, DEPTH: tl.constexpr,
        WIDTH: tl.constexpr, STAGES: tl.constexpr):
    """One row a program: its loss, and whether it counts."""
    row = tl.program_id(0)
    base = (row // inner).to(tl.int64) * n * inner + row % inner
    wanted = tl.load(target + row)
    counts = wanted != ignored
    chosen = cross_entropy_chosen(
        # kopt: operands
        x, base + wanted * inner, counts)
    step = tl.arange(0, DEPTH)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    top = tl.full([1, WIDTH], -1e30, tl.float32)  # finite: -inf - -inf is NaN
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
    one = tl.zeros([1, 1], tl.int32)
    tl.store(losses + row * 2 + one, tl.where(counts, loss, 0.0))
    tl.store(losses + row * 2 + 1 + one, tl.where(counts, 1.0, 0.0) + one)


@triton.jit
def cross_entropy_join(losses, y, rows, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    count = tl.zeros([BLOCK], tl.float32)
    for start in range(0, rows, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(losses + i * 2, mask=i < rows, other=0.0)
        count += tl.load(losses + i * 2 + 1, mask=i < rows, other=0.0)
    result = tl.sum(total, 0)
    if MEAN:
        result /= tl.sum(count, 0)
    tl.store(y, result)


def cross_entropy(
        # kopt: operands
        x, target, reduction="mean", ignore_index=-100, label_smoothing=0.0):
    """Logits [rows, classes, ...] and class indices [rows, ...]; reduction: mean, sum or none."""
    x, target = x.contiguous(), target.contiguous()
    n, inner = (x.shape[1], x.shape[2:].numel()) if x.dim() > 1 else (x.shape[0], 1)
    rows = target.numel()
    losses = torch.empty(rows, 2, dtype=torch.float32, device=x.device)
    cross_entropy_rows[(rows,)](
        # kopt: operands
        x, target, losses, n, inner, ignore_index, label_smoothing, DEPTH=4,
        WIDTH=min(CROSS_ENTROPY_BLOCK, max(16, triton.next_power_of_2(n))) // 4,
        STAGES=CROSS_ENTROPY_STAGES,
        num_warps=max(1, min(CROSS_ENTROPY_WARPS, triton.next_power_of_2(n) // 1024)))
    if reduction == "none":
        return losses[:, 0].to(x.dtype).view(target.shape)
    y = torch.empty((), dtype=x.dtype, device=x.device)
    cross_entropy_join[(1,)](losses, y, rows, MEAN=reduction == "mean", BLOCK=1024, num_warps=4)
    return y
