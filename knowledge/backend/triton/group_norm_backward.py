"""The gradients of group norm by input, weight and bias.

A group that fits in registers is read once. Many programs share a larger one: they measure its
parts, then others take the gradients. Programs take their turns from a counter: a span of groups
is measured, the gradients of the span before it are taken out of the cache. A program waits only
for programs with earlier turns, which run already, so it never waits for ever.
"""

import torch
import triton
import triton.language as tl

GROUP_NORM_BACKWARD_WHOLE = 16384  # kopt: knob GROUP_NORM_BACKWARD_WHOLE in [4096, 8192, 16384]
GROUP_NORM_BACKWARD_TILE = 8192  # kopt: knob GROUP_NORM_BACKWARD_TILE in [2048, 4096, 8192] a part
GROUP_NORM_BACKWARD_SPAN = 524288  # kopt: knob GROUP_NORM_BACKWARD_SPAN in [262144, 524288]
GROUP_NORM_BACKWARD_PER_THREAD = 16  # kopt: knob GROUP_NORM_BACKWARD_PER_THREAD in [8, 16, 32]


@triton.jit
def group_norm_backward_whole(x, dy, weight, dx, weight_parts, bias_parts, groups, own, places, eps,
                              SCALED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """One group a program, in registers."""
    channel = tl.arange(0, ROWS)[:, None]
    lane = tl.arange(0, BLOCK)[None, :]
    within = channel < own
    inside = within & (lane < places)
    at = tl.program_id(0).to(tl.int64) * own * places + channel * places + lane
    values = (own * places).to(tl.float32)
    away = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    given = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(tl.sum(away, 1), 0) / values
    away = tl.where(inside, away - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(tl.sum(away * away, 1), 0) / values + eps)
    away *= scale
    change = tl.sum(given, 1)[:, None]
    product = tl.sum(given * away, 1)[:, None]
    part = tl.program_id(0).to(tl.int64) * own + channel
    tl.store(bias_parts + part, change, mask=within)
    tl.store(weight_parts + part, product, mask=within)
    if SCALED:
        factor = tl.load(weight + tl.program_id(0) % groups * own + channel, mask=within,
                         other=0.0).to(tl.float32)
        given *= factor
        change *= factor
        product *= factor
    shift = tl.sum(tl.sum(change, 1), 0) / values
    slope = tl.sum(tl.sum(product, 1), 0) / values
    tl.store(dx + at, (given - shift - away * slope) * scale, mask=inside)


@triton.jit
def group_norm_backward_spread(x, dy, weight, dx, weight_parts, bias_parts, moments, sums, turns,
                               total, groups, own, places, chunks, parts, units, eps,
                               SCALED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
                               PARTS: tl.constexpr, OWN: tl.constexpr, CHUNKS: tl.constexpr):
    """A part of a group, ROWS channels and BLOCK places: its sums, or its gradients.

    moments [group, part]: mean of x, squared distances to it; sums [channel, chunk]: of dy, and
    of dy times the distance of x to the part's mean.
    """
    turn = tl.atomic_add(turns, 1)
    phase = turn // units
    closes = (phase > 0) & (phase % 2 == 0)
    unit = tl.where(closes, phase // 2 - 1, (phase + 1) // 2) * units + turn % units
    group = unit // parts
    if group < total:
        part = unit % parts
        channel = part // chunks * ROWS + tl.arange(0, ROWS)[:, None]
        lane = part % chunks * BLOCK + tl.arange(0, BLOCK)[None, :]
        inside = (channel < own) & (lane < places)
        begin = group.to(tl.int64) * own
        at = (begin + channel) * places + lane
        moments += group.to(tl.int64) * parts * 2
        if closes:
            while tl.atomic_add(turns + 1 + group, 0, sem="acquire") < parts:
                pass
            tl.debug_barrier()
            values = (own * places).to(tl.float32)
            p = tl.arange(0, PARTS)
            known = p < parts
            count = (tl.minimum(own - p // chunks * ROWS, ROWS)
                     * tl.minimum(places - p % chunks * BLOCK, BLOCK)).to(tl.float32)
            means = tl.load(moments + p * 2, mask=known, other=0.0)
            mean = tl.sum(tl.where(known, means * count, 0.0), 0) / values
            apart = tl.where(known, (means - mean) * (means - mean) * count, 0.0)
            apart += tl.load(moments + p * 2 + 1, mask=known, other=0.0)
            scale = 1.0 / tl.sqrt(tl.sum(apart, 0) / values + eps)
            c = tl.arange(0, OWN)[:, None]
            k = tl.arange(0, CHUNKS)[None, :]
            known = (c < own) & (k < chunks)
            place = sums + ((begin + c) * chunks + k) * 2
            changes = tl.load(place, mask=known, other=0.0)
            means = tl.load(moments + (c // ROWS * chunks + k) * 2, mask=known, other=0.0)
            products = tl.load(place + 1, mask=known, other=0.0) + (means - mean) * changes
            change = tl.sum(changes, 1)[:, None]
            product = tl.sum(products, 1)[:, None] * scale
            if part == 0:
                tl.store(bias_parts + begin + c, change, mask=c < own)
                tl.store(weight_parts + begin + c, product, mask=c < own)
            given = tl.load(dy + at, mask=inside, other=0.0,
                            eviction_policy="evict_first").to(tl.float32)
            if SCALED:
                first = group % groups * own
                factor = tl.load(weight + first + c, mask=c < own, other=0.0).to(tl.float32)
                change *= factor
                product *= factor
                given *= tl.load(weight + first + channel, mask=channel < own,
                                 other=0.0).to(tl.float32)
            shift = tl.sum(tl.sum(change, 1), 0) / values
            slope = tl.sum(tl.sum(product, 1), 0) / values
            away = tl.load(x + at, mask=inside, other=0.0,
                           eviction_policy="evict_first").to(tl.float32)
            away = (away - mean) * scale
            tl.store(dx + at, (given - shift - away * slope) * scale, mask=inside,
                     eviction_policy="evict_first")
        else:
            size = (tl.minimum(own - part // chunks * ROWS, ROWS)
                    * tl.minimum(places - part % chunks * BLOCK, BLOCK)).to(tl.float32)
            away = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
            given = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
            mean = tl.sum(tl.sum(away, 1), 0) / size
            away = tl.where(inside, away - mean, 0.0)
            tl.store(moments + part * 2, mean)
            tl.store(moments + part * 2 + 1, tl.sum(tl.sum(away * away, 1), 0))
            to = sums + ((begin + channel) * chunks + part % chunks) * 2
            tl.store(to, tl.sum(given, 1)[:, None], mask=channel < own)
            tl.store(to + 1, tl.sum(given * away, 1)[:, None], mask=channel < own)
            tl.debug_barrier()
            tl.atomic_add(turns + 1 + group, 1, sem="release")


def group_norm_backward(x, dy, groups, weight=None, eps=1e-5, of="x"):
    """x, dy [samples, channels, ...]; of: which gradients, of x, w and b, in that order."""
    x, dy = x.contiguous(), dy.contiguous()
    samples, channels = x.shape[:2]
    own, places, total = channels // groups, x.shape[2:].numel(), samples * groups
    dx = torch.empty_like(x)
    make = torch.empty if x.numel() else torch.zeros
    sides = make(2, samples, channels, dtype=torch.float32, device=x.device)
    rows, width = 1 << (own - 1).bit_length(), 1 << (places - 1).bit_length()
    given = x, dy, x if weight is None else weight.contiguous(), dx, sides[0], sides[1]
    if x.numel() and rows * width <= GROUP_NORM_BACKWARD_WHOLE:
        group_norm_backward_whole[(total,)](
            *given, groups, own, places, eps, SCALED=weight is not None, ROWS=rows, BLOCK=width,
            num_warps=max(1, min(32, rows * width // (32 * GROUP_NORM_BACKWARD_PER_THREAD))))
    elif x.numel():
        block = min(width, GROUP_NORM_BACKWARD_TILE)
        height = min(rows, GROUP_NORM_BACKWARD_TILE // block)
        chunks = -(-places // block)
        parts = chunks * -(-own // height)
        units = min(total, max(1, GROUP_NORM_BACKWARD_SPAN // (own * places))) * parts
        turns = torch.zeros(total + 1, dtype=torch.int32, device=x.device)
        measured = torch.empty(2 * total * (parts + own * chunks), dtype=torch.float32,
                               device=x.device)
        group_norm_backward_spread[((2 * -(-total * parts // units) + 1) * units,)](
            *given, measured, measured[2 * total * parts:], turns, total, groups, own, places,
            chunks, parts, units, eps, SCALED=weight is not None, ROWS=height, BLOCK=block,
            PARTS=1 << (parts - 1).bit_length(), OWN=rows, CHUNKS=1 << (chunks - 1).bit_length(),
            num_warps=max(1, min(32, block * height // (32 * GROUP_NORM_BACKWARD_PER_THREAD))))
    made = {"x": lambda: dx, "w": lambda: sides[0].sum(0).to(x.dtype),
            "b": lambda: sides[1].sum(0).to(x.dtype)}
    return [made[name]() for name in of]
