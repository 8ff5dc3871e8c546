"""Batch norm: with the batch's own statistics, which it measures in parts, or with stored ones."""

import torch
import triton
import triton.language as tl

BATCH_NORM_PART = 8192  # kopt: knob BATCH_NORM_PART in [4096, 8192, 16384, 32768] values a program
BATCH_NORM_BLOCK = 4096  # kopt: knob BATCH_NORM_BLOCK in [1024, 2048, 4096] values of a step
BATCH_NORM_LANES = 32  # kopt: knob BATCH_NORM_LANES in [16, 32, 64, 128] neighbours; short planes
BATCH_NORM_WARPS = 8  # kopt: knob BATCH_NORM_WARPS in [4, 8, 16] warps of a program


@triton.jit
def batch_norm_measure(
        # kopt: operands
        x, measured, n, inner, part, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
        LANES: tl.constexpr):
    """Mean of a part of [outer, n, inner] along n, and the sum of squared distances to it.

    The distances are measured from the part's first value: no digits are lost to a large mean.
    """
    parts = tl.cdiv(n, part)
    if COLUMNS:
        blocks = tl.cdiv(inner, LANES)
        place = tl.program_id(0) // blocks
        lane = tl.program_id(0) % blocks * LANES + tl.arange(0, LANES)[None, :]
        step = tl.arange(0, DEPTH)[:, None]
    else:
        place = tl.program_id(0)
        lane = tl.zeros([LANES, 1], tl.int32)
        step = tl.arange(0, DEPTH)[None, :]
    known = lane < inner
    begin = (place % parts).to(tl.int64) * part
    limit = tl.minimum(n - begin, part).to(tl.int32)
    base = ((place // parts).to(tl.int64) * n + begin) * inner + lane
    first = batch_norm_first(
        # kopt: operands
        x, base, known)
    AXIS: tl.constexpr = 0 if COLUMNS else 1
    sums = tl.zeros([DEPTH, LANES] if COLUMNS else [LANES, DEPTH], tl.float32)
    squares = tl.zeros([DEPTH, LANES] if COLUMNS else [LANES, DEPTH], tl.float32)
    for start in tl.range(0, limit, DEPTH):
        i = start + step
        inside = (i < limit) & known
        at = base + i.to(tl.int64) * inner
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        # kopt: prologue value
        value = tl.where(inside, value - first, 0.0)
        sums += value
        squares += value * value
    mean = tl.sum(sums, AXIS, keep_dims=True) / limit
    total = tl.sum(squares, AXIS, keep_dims=True) - mean * mean * limit
    to = measured + (place.to(tl.int64) * inner + lane) * 2
    tl.store(to, mean + first, mask=known)
    tl.store(to + 1, total, mask=known)


@triton.jit
def batch_norm_first(
        # kopt: operands
        x, base, known):
    at = base
    inside = known
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    # kopt: prologue value
    return value


@triton.jit
def batch_norm_join(
        measured, mean, variance, running_mean, running_variance, channels, every, group, length,
        part, size, momentum, COLUMNS: tl.constexpr, RUNNING: tl.constexpr, BLOCK: tl.constexpr):
    """Join the parts of a channel: measured is [.., channels, group]."""
    channel = tl.program_id(0)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, every, BLOCK):
        e = start + tl.arange(0, BLOCK)
        place = (e // group * channels + channel).to(tl.int64) * group + e % group
        count = tl.minimum(length - (e // group if COLUMNS else e % group) * part, part)
        sums += count * tl.load(measured + place * 2, mask=e < every, other=0.0)
    center = tl.sum(sums, 0) / size
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, every, BLOCK):
        e = start + tl.arange(0, BLOCK)
        place = (e // group * channels + channel).to(tl.int64) * group + e % group
        count = tl.minimum(length - (e // group if COLUMNS else e % group) * part, part)
        apart = tl.load(measured + place * 2, mask=e < every, other=0.0) - center
        squares += tl.where(e < every, tl.load(measured + place * 2 + 1, mask=e < every, other=0.0)
                            + count * apart * apart, 0.0)
    total = tl.sum(squares, 0)
    tl.store(mean + channel, center)
    tl.store(variance + channel, total / size)
    if RUNNING:
        old = tl.load(running_mean + channel).to(tl.float32)
        tl.store(running_mean + channel, old + momentum * (center - old))
        old = tl.load(running_variance + channel).to(tl.float32)
        tl.store(running_variance + channel, old + momentum * (total / (size - 1.0) - old))


@triton.jit
def batch_norm_apply(
        # kopt: operands
        x, y, mean, variance, weight, bias, size, eps, CHANNELS: tl.constexpr,
        PLANE: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    value = tl.load(x + at, mask=inside).to(tl.float32)
    # kopt: prologue value
    channel = at // PLANE % CHANNELS
    value -= tl.load(mean + channel, mask=inside, other=0.0).to(tl.float32)
    value /= tl.sqrt(tl.load(variance + channel, mask=inside, other=1.0).to(tl.float32) + eps)
    if WEIGHT:
        value *= tl.load(weight + channel, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        value += tl.load(bias + channel, mask=inside, other=0.0).to(tl.float32)
    # kopt: epilogue value
    tl.store(y + at, value, mask=inside)


def batch_norm(
        # kopt: operands
        x, running_mean=None, running_var=None, weight=None, bias=None, training=False,
        momentum=0.1, eps=1e-5):
    """x is [rows, channels, ...]; training updates the stored statistics in place."""
    x = x.contiguous()
    y = torch.empty_like(x)
    rows, channels, plane = x.shape[0], x.shape[1], x.shape[2:].numel()
    mean, variance = running_mean, running_var
    if training or running_mean is None:
        columns = plane < 128
        outer, n, inner = (1, rows, channels * plane) if columns else (rows * channels, plane, 1)
        lanes = min(BATCH_NORM_LANES, 1 << (inner - 1).bit_length())
        depth = min(BATCH_NORM_BLOCK // lanes, 1 << (n - 1).bit_length())
        part = -(-max(BATCH_NORM_PART // lanes, -(-n // 512)) // depth) * depth
        parts = -(-n // part)
        measured = torch.empty(outer * parts * inner * 2, dtype=torch.float32, device=x.device)
        batch_norm_measure[(outer * parts * -(-inner // lanes),)](
            # kopt: operands
            x, measured, n, inner, part, COLUMNS=columns, DEPTH=depth, LANES=lanes,
            num_warps=max(1, min(BATCH_NORM_WARPS, depth * lanes // 512)))
        mean, variance = torch.empty(2, channels, dtype=torch.float32, device=x.device)
        group = plane if columns else parts
        kept = running_mean is not None
        batch_norm_join[(channels,)](
            measured, mean, variance, running_mean if kept else mean,
            running_var if kept else mean, channels, outer * parts * inner // channels, group, n,
            part, float(rows * plane), momentum, COLUMNS=columns, RUNNING=kept, BLOCK=1024)
    batch_norm_apply[(-(-x.numel() // BATCH_NORM_BLOCK),)](
        # kopt: operands
        x, y, mean, variance, x if weight is None else weight, x if bias is None else bias,
        x.numel(), eps, CHANNELS=channels, PLANE=plane, WEIGHT=weight is not None,
        BIAS=bias is not None, BLOCK=BATCH_NORM_BLOCK, num_warps=BATCH_NORM_WARPS)
    return y
