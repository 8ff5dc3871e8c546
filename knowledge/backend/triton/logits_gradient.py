"""Cross-entropy with its gradient by the logits in one launch: no probabilities in memory.

A row that a program can hold is read once; longer ones are read twice, in blocks.
"""

import torch
import triton
import triton.language as tl

LOGITS_GRADIENT_WHOLE = 16384  # kopt: knob LOGITS_GRADIENT_WHOLE in [8192, 16384, 32768] held
LOGITS_GRADIENT_BLOCK = 8192  # kopt: knob LOGITS_GRADIENT_BLOCK in [2048, 4096, 8192, 16384]
LOGITS_GRADIENT_EACH = 16  # kopt: knob LOGITS_GRADIENT_EACH in [8, 16, 32] values of a thread


@triton.jit
def logits_gradient_kernel(x, target, dy, counted, dx, losses, n, ignored, smoothing,
                           GIVEN: tl.constexpr, MEAN: tl.constexpr, EACH: tl.constexpr,
                           WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    """One row. GIVEN: dy is a gradient of the loss, EACH: of each row's."""
    row = tl.program_id(0).to(tl.int64)
    x += row * n
    dx += row * n
    own = tl.load(target + row)
    counts = own != ignored
    scale = 1.0
    if GIVEN:
        scale = tl.load(dy + row * EACH).to(tl.float32)
    if MEAN:
        scale /= tl.load(counted).to(tl.float32)
    lane = tl.arange(0, BLOCK)
    if WHOLE:
        value = tl.load(x + lane, mask=lane < n, other=-float("inf")).to(tl.float32)
        most = tl.max(value, 0)
        total = tl.sum(tl.exp(value - most), 0)
        summed = tl.sum(tl.where(lane < n, value, 0.0), 0)
    else:
        tops = tl.full([BLOCK], -float("inf"), tl.float32)
        sums = tl.zeros([BLOCK], tl.float32)
        values = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n, BLOCK):
            inside = start + lane < n
            value = tl.load(x + start + lane, mask=inside, other=-float("inf")).to(tl.float32)
            top = tl.maximum(tops, value)
            shift = tl.where(top == -float("inf"), 0.0, top)
            sums = sums * tl.exp(tops - shift) + tl.exp(value - shift)
            tops = top
            values += tl.where(inside, value, 0.0)
        most = tl.max(tops, 0)
        total = tl.sum(sums * tl.exp(tops - most), 0)
        summed = tl.sum(values, 0)
    log_sum = most + tl.log(total)
    there = tl.load(x + own, mask=counts, other=0.0).to(tl.float32)
    loss = log_sum - (1.0 - smoothing) * there
    if smoothing > 0:
        loss -= smoothing / n * summed
    tl.store(losses + row, tl.where(counts, loss, 0.0))
    if WHOLE:
        change = tl.exp(value - log_sum) - smoothing / n - tl.where(
            lane == own, 1.0 - smoothing, 0.0)
        tl.store(dx + lane, tl.where(counts, change * scale, 0.0), mask=lane < n)
    else:
        for start in range(0, n, BLOCK):
            at = start + lane
            value = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
            change = tl.exp(value - log_sum) - smoothing / n - tl.where(
                at == own, 1.0 - smoothing, 0.0)
            tl.store(dx + at, tl.where(counts, change * scale, 0.0), mask=at < n)


def logits_gradient(x, target, dy=None, reduction="mean", ignore_index=-100, label_smoothing=0.0):
    """Return the gradient by x [rows, classes], and the loss; dy: the loss's own gradient."""
    x, target = x.contiguous(), target.contiguous()
    rows, n = x.shape
    dx = torch.empty_like(x)
    losses = torch.empty(rows, dtype=torch.float32, device=x.device)
    counted = torch.count_nonzero(target != ignore_index) if reduction == "mean" else losses
    whole = n <= LOGITS_GRADIENT_WHOLE
    block = max(32, 1 << (n - 1).bit_length()) if whole else LOGITS_GRADIENT_BLOCK
    if dx.numel():
        logits_gradient_kernel[(rows,)](
            x, target, losses if dy is None else dy.contiguous(), counted, dx, losses, n,
            ignore_index, label_smoothing, GIVEN=dy is not None, MEAN=reduction == "mean",
            EACH=int(reduction == "none"), WHOLE=whole, BLOCK=block,
            num_warps=max(1, min(32, block // (32 * LOGITS_GRADIENT_EACH))))
    if reduction != "none":
        losses = losses.sum() / (counted if reduction == "mean" else 1)
    return dx, losses.to(x.dtype)
