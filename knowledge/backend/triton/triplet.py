"""Triplet margin loss: both distances of a row in one read, then the sum over rows in their order.
"""

import torch
import triton
import triton.language as tl

TRIPLET_BLOCK = 2048  # kopt: knob TRIPLET_BLOCK in [512, 1024, 2048, 4096] most values of a step
TRIPLET_WARPS = 8  # kopt: knob TRIPLET_WARPS in [4, 8, 16] warps of a row
TRIPLET_STAGES = 2  # kopt: knob TRIPLET_STAGES in [1, 2, 3] loads in flight


@triton.jit
def triplet_kernel(anchor, positive, negative, losses, columns, margin, eps, SWAP: tl.constexpr,
                   BLOCK: tl.constexpr, STAGES: tl.constexpr):
    begin = tl.program_id(0).to(tl.int64) * columns
    near = tl.zeros([BLOCK], tl.float32)
    far = tl.zeros([BLOCK], tl.float32)
    swapped = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, columns, BLOCK, num_stages=STAGES):
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        a = tl.load(anchor + begin + column, mask=inside, other=0.0).to(tl.float32)
        p = tl.load(positive + begin + column, mask=inside, other=0.0).to(tl.float32)
        n = tl.load(negative + begin + column, mask=inside, other=0.0).to(tl.float32)
        near += tl.where(inside, (a - p + eps) * (a - p + eps), 0.0)
        far += tl.where(inside, (a - n + eps) * (a - n + eps), 0.0)
        if SWAP:
            swapped += tl.where(inside, (p - n + eps) * (p - n + eps), 0.0)
    distance = tl.sqrt(tl.sum(far, 0))
    if SWAP:
        distance = tl.minimum(distance, tl.sqrt(tl.sum(swapped, 0)),
                              propagate_nan=tl.PropagateNan.ALL)
    value = tl.sqrt(tl.sum(near, 0)) - distance + margin
    tl.store(losses + tl.program_id(0),
             tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL))


@triton.jit
def triplet_join(losses, y, rows, scale, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, rows, BLOCK):
        row = start + tl.arange(0, BLOCK)
        total += tl.load(losses + row, mask=row < rows, other=0.0)
    tl.store(y, (tl.sum(total, 0) * scale).to(y.dtype.element_ty))


def triplet(anchor, positive, negative, margin=1.0, eps=1e-6, swap=False, reduction="mean"):
    """Return the triplet margin loss of [..., d] tensors of one shape; reduction is mean or sum."""
    columns = anchor.shape[-1]
    rows = anchor.numel() // columns
    losses = torch.empty(rows, dtype=torch.float32, device=anchor.device)
    y = torch.empty((), dtype=anchor.dtype, device=anchor.device)
    block = min(TRIPLET_BLOCK, 1 << (columns - 1).bit_length())
    triplet_kernel[(rows,)](
        anchor.contiguous(), positive.contiguous(), negative.contiguous(), losses, columns, margin,
        eps, SWAP=swap, BLOCK=block, STAGES=TRIPLET_STAGES,
        num_warps=TRIPLET_WARPS if block > 512 else 4)
    triplet_join[(1,)](losses, y, rows, 1.0 / rows if reduction == "mean" else 1.0, BLOCK=1024)
    return y
