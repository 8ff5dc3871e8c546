"""The gradients of group norm by input, weight and bias: one program a group of a sample.

It keeps a tile of the group's channels and some of their places; three passes, of which the
second and third find the group in the last cache.
"""

import torch
import triton
import triton.language as tl

GROUP_NORM_BACKWARD_TILE = 8192  # kopt: knob GROUP_NORM_BACKWARD_TILE in [2048, 4096, 8192, 16384]
GROUP_NORM_BACKWARD_WARPS = 8  # kopt: knob GROUP_NORM_BACKWARD_WARPS in [4, 8, 16]


@triton.jit
def group_norm_backward_kernel(x, dy, weight, dx, weight_parts, bias_parts, groups, places, eps,
                               SCALED: tl.constexpr, OWN: tl.constexpr, ROWS: tl.constexpr,
                               BLOCK: tl.constexpr):
    """OWN channels a group; parts [samples, channels] are the sums over a sample's places."""
    begin = tl.program_id(0).to(tl.int64) * OWN * places
    first = tl.program_id(0) % groups * OWN
    channel = tl.arange(0, ROWS)[:, None]
    lane = tl.arange(0, BLOCK)[None, :]
    within = channel < OWN
    values = (OWN * places).to(tl.float32)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, places, BLOCK):
        there = within & (start + lane < places)
        total += tl.load(x + begin + channel * places + start + lane, mask=there,
                         other=0.0).to(tl.float32)
    mean = tl.sum(tl.sum(total, 1), 0) / values
    squares = tl.zeros([ROWS, BLOCK], tl.float32)
    changes = tl.zeros([ROWS, BLOCK], tl.float32)
    products = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, places, BLOCK):
        there = within & (start + lane < places)
        at = begin + channel * places + start + lane
        away = tl.where(there, tl.load(x + at, mask=there, other=0.0).to(tl.float32) - mean, 0.0)
        given = tl.load(dy + at, mask=there, other=0.0).to(tl.float32)
        squares += away * away
        changes += given
        products += given * away
    scale = 1.0 / tl.sqrt(tl.sum(tl.sum(squares, 1), 0) / values + eps)
    change = tl.sum(changes, 1)[:, None]
    product = tl.sum(products, 1)[:, None] * scale
    part = tl.program_id(0).to(tl.int64) * OWN + channel
    tl.store(bias_parts + part, change, mask=within)
    tl.store(weight_parts + part, product, mask=within)
    factor = tl.full([ROWS, 1], 1.0, tl.float32)
    if SCALED:
        factor = tl.load(weight + first + channel, mask=within, other=0.0).to(tl.float32)
    shift = tl.sum(tl.sum(change * factor, 1), 0) / values
    slope = tl.sum(tl.sum(product * factor, 1), 0) / values
    for start in range(0, places, BLOCK):
        there = within & (start + lane < places)
        at = begin + channel * places + start + lane
        away = (tl.load(x + at, mask=there, other=0.0).to(tl.float32) - mean) * scale
        given = tl.load(dy + at, mask=there, other=0.0).to(tl.float32) * factor
        tl.store(dx + at, (given - shift - away * slope) * scale, mask=there)


def group_norm_backward(x, dy, groups, weight=None, eps=1e-5, of="x"):
    """x, dy [samples, channels, ...]; of: which gradients, of x, w and b, in that order."""
    x, dy = x.contiguous(), dy.contiguous()
    samples, channels = x.shape[:2]
    own, places = channels // groups, x.shape[2:].numel()
    dx = torch.empty_like(x)
    parts = torch.zeros(2, samples, channels, dtype=torch.float32, device=x.device)
    rows = 1 << (own - 1).bit_length()
    if x.numel():
        group_norm_backward_kernel[(samples * groups,)](
            x, dy, x if weight is None else weight.contiguous(), dx, parts[0], parts[1], groups,
            places, eps, SCALED=weight is not None, OWN=own, ROWS=rows,
            BLOCK=max(1, min(1 << (places - 1).bit_length(), GROUP_NORM_BACKWARD_TILE // rows)),
            num_warps=GROUP_NORM_BACKWARD_WARPS)
    made = {"x": lambda: dx, "w": lambda: parts[0].sum(0).to(x.dtype),
            "b": lambda: parts[1].sum(0).to(x.dtype)}
    return [made[name]() for name in of]
