"""Routing of tokens to experts: the largest scores of a row, their numbers and their shares.

A program keeps rows in registers and takes their largest score as often as experts are chosen. The
order of softmax or sigmoid is that of the scores, so these choose; of equal ones the first.
"""

import torch
import triton
import triton.language as tl

ROUTE_ROWS = 4  # kopt: knob ROUTE_ROWS in [1, 2, 4, 8, 16] most tokens of a program
ROUTE_WARPS = 1  # kopt: knob ROUTE_WARPS in [1, 2, 4, 8] warps of a program


@triton.jit
def route_kernel(
        x, shares, chosen, indices, rows, experts, limit, row_step, column_step,
        SCORE: tl.constexpr, SHARE: tl.constexpr, CHOSEN: tl.constexpr, PLACES: tl.constexpr,
        BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """SCORE: softmax, sigmoid or none; SHARE: sum, softmax or none of the chosen scores."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lane = tl.arange(0, BLOCK)[None, :]
    place = tl.arange(0, PLACES)[None, :]
    inside = (row < rows) & (lane < experts)
    value = tl.load(x + row * row_step + lane * column_step, mask=inside,
                    other=float("-inf")).to(tl.float32)
    # NaN is the largest, as for torch.topk; what is taken or outside is below all others
    left = tl.where(value != value, float("inf"), tl.maximum(value, -3.4e38))
    left = tl.where(lane < experts, left, float("-inf"))
    score = tl.full([ROWS, PLACES], float("-inf"), tl.float32)
    number = tl.zeros([ROWS, PLACES], tl.int32)
    for which in tl.static_range(CHOSEN):
        index = tl.argmax(left, 1)[:, None]
        taken = lane == index
        own = tl.sum(tl.where(taken, value, 0.0), 1)[:, None]
        score = tl.where(place == which, own, score)
        number = tl.where(place == which, index, number)
        left = tl.where(taken, float("-inf"), left)
    if SCORE == "softmax":
        most = tl.max(value, 1)[:, None]
        score = tl.exp(score - most) / tl.sum(tl.exp(value - most), 1)[:, None]
    if SCORE == "sigmoid":
        score = 1.0 / (1.0 + tl.exp(-score))
    at = row * CHOSEN + place
    there = (row < rows) & (place < CHOSEN)
    tl.store(chosen + at, score.to(chosen.dtype.element_ty), mask=there)
    tl.store(indices + at, number.to(tl.int64), mask=there)
    if SHARE == "sum":
        score = score / (tl.sum(tl.where(place < CHOSEN, score, 0.0), 1)[:, None] + limit)
    if SHARE == "softmax":
        score = tl.exp(score - tl.max(score, 1)[:, None])
        score = score / tl.sum(score, 1)[:, None]
    if SHARE != "":
        tl.store(shares + at, score.to(shares.dtype.element_ty), mask=there)


def route(x, k, score="softmax", share="", eps=0.0, wide=False, dtype=None):
    """Return the k largest scores of each row and their numbers, as torch.topk does.

    With a share it returns (shares, (scores, numbers)): the scores over their sum + eps, or their
    softmax. wide: scores are float32; dtype is the shares', that of the scores if it is None.
    """
    experts = x.shape[-1]
    flat = x.reshape(-1, experts)
    rows = flat.shape[0]
    chosen = torch.empty(*x.shape[:-1], k, dtype=torch.float32 if wide else x.dtype,
                         device=x.device)
    indices = torch.empty(chosen.shape, dtype=torch.int64, device=x.device)
    shares = torch.empty_like(chosen, dtype=dtype or chosen.dtype) if share else chosen
    if chosen.numel():
        height = min(ROUTE_ROWS, 1 << (-(-rows // 256) - 1).bit_length())
        route_kernel[(-(-rows // height),)](
            flat, shares, chosen, indices, rows, experts, eps, *flat.stride(), SCORE=score,
            SHARE=share, CHOSEN=k, PLACES=1 << (k - 1).bit_length(),
            BLOCK=1 << (experts - 1).bit_length(), ROWS=height, num_warps=ROUTE_WARPS)
    return (shares, (chosen, indices)) if share else (chosen, indices)
