"""Losses of two tensors that broadcast, summed or averaged in one read and one small second launch.
"""

import torch
import triton
import triton.language as tl

LOSS_BLOCK = 4096  # kopt: knob LOSS_BLOCK in [1024, 2048, 4096, 8192] elements of a step
LOSS_PROGRAMS = 1024  # kopt: knob LOSS_PROGRAMS in [256, 512, 1024, 2048, 4096] that share the sum
LOSS_WARPS = 8  # kopt: knob LOSS_WARPS in [4, 8, 16] warps of a program
LOSS_STAGES = 2  # kopt: knob LOSS_STAGES in [1, 2, 3, 4] loads in flight

LOSS_KINDS = ("mse", "l1", "smooth_l1", "huber", "kl", "kl_log", "kl_of_probabilities", "hinge",
              "bce", "bce_logits")


@triton.jit
def loss_element(a, b, beta, KIND: tl.constexpr):
    apart = a - b
    if KIND == "mse":
        result = apart * apart
    elif KIND == "l1":
        result = tl.abs(apart)
    elif KIND == "smooth_l1":
        near = tl.abs(apart)
        result = tl.where(near < beta, 0.5 * near * near / beta, near - 0.5 * beta)
    elif KIND == "huber":
        near = tl.abs(apart)
        result = tl.where(near <= beta, 0.5 * near * near, beta * (near - 0.5 * beta))
    elif KIND == "kl":
        result = tl.where(b > 0, b * (tl.log(tl.maximum(b, 1.2e-38)) - a), 0.0 * a)
    elif KIND == "kl_log":
        result = tl.exp(b) * (b - a)
    elif KIND == "kl_of_probabilities":
        result = tl.where(b > 0, b * (tl.log(tl.maximum(b, 1.2e-38)) - tl.log(a)), 0.0 * a)
    elif KIND == "hinge":
        result = tl.maximum(1.0 - a * b, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif KIND == "bce":
        result = -(b * tl.maximum(tl.log(a), -100.0) + (1 - b) * tl.maximum(tl.log(1 - a), -100.0))
    else:
        result = tl.maximum(a, 0.0) - a * b + tl.log(1.0 + tl.exp(-tl.abs(a)))
    return result


@triton.jit
def loss_kernel(
        # kopt: operands
        a, b, y, size, part, scale, beta, PERIOD: tl.constexpr, REPEAT: tl.constexpr,
        KIND: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """One part's sum; a's element i meets b's element i // REPEAT % PERIOD, or i without these."""
    begin = tl.program_id(0).to(tl.int64) * part
    limit = tl.minimum(size - begin, part).to(tl.int32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, limit, BLOCK, num_stages=STAGES):
        i = start + tl.arange(0, BLOCK)
        inside = i < limit
        at = begin + i
        place = at
        if PERIOD:
            place = at // REPEAT % PERIOD
        value = tl.load(a + at, mask=inside, other=0.0).to(tl.float32)
        # kopt: prologue value
        other = tl.load(b + place, mask=inside, other=0.0).to(tl.float32)
        value = loss_element(value, other, beta, KIND)
        total += tl.where(inside, value, 0.0)
    tl.store(y + tl.program_id(0), tl.sum(total, 0) * scale)


@triton.jit
def loss_join(parts, y, count, COUNT: tl.constexpr):
    i = tl.arange(0, COUNT)
    tl.store(y, tl.sum(tl.load(parts + i, mask=i < count, other=0.0), 0))


def loss(
        # kopt: operands
        a, b, kind="mse", reduction="mean", beta=1.0):
    """kind is one of LOSS_KINDS; reduction is mean, sum or batchmean. b broadcasts to a."""
    a = a.contiguous()
    lead = b
    while lead.dim() < a.dim():
        lead = lead.unsqueeze(0)
    known = [d for d, size in enumerate(lead.shape) if size > 1]
    inner = a.shape[known[-1] + 1:].numel() if known else 1
    if known and lead.shape[known[0]:known[-1] + 1] != a.shape[known[0]:known[-1] + 1]:
        lead, inner = lead.expand(a.shape), 1  # a gap between its dimensions: as large as a
    lead = lead.contiguous()
    size = a.numel()
    scale = {"mean": 1.0 / size, "sum": 1.0, "batchmean": 1.0 / a.shape[0]}[reduction]
    part = -(-size // (LOSS_PROGRAMS * LOSS_BLOCK)) * LOSS_BLOCK
    count = -(-size // part)
    parts = torch.empty(count, dtype=torch.float32, device=a.device)
    loss_kernel[(count,)](
        # kopt: operands
        a, lead, parts, size, part, scale, beta, PERIOD=0 if lead.numel() == size else lead.numel(),
        REPEAT=inner, KIND=kind, BLOCK=LOSS_BLOCK, STAGES=LOSS_STAGES, num_warps=LOSS_WARPS)
    y = torch.empty((), dtype=a.dtype, device=a.device)
    loss_join[(1,)](parts, y, count, COUNT=1 << (count - 1).bit_length())
    return y
