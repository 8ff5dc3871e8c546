"""Sum, mean, product, maximum, minimum, L1 and L2 norm, arg-max and arg-min over dimensions.

The tensor is read where it lies: a middle dimension is not moved. Where there are too few results
to fill the device, each one's values are split over programs, and a second launch joins the parts.
"""

import torch
import triton
import triton.language as tl

REDUCE_BLOCK = 4096  # kopt: knob REDUCE_BLOCK in [1024, 2048, 4096, 8192] values in a step
REDUCE_STEP = 1024  # kopt: knob REDUCE_STEP in [512, 1024, 2048, 4096] where dimensions follow
REDUCE_LANES = 256  # kopt: knob REDUCE_LANES in [32, 64, 128, 256, 512] neighbours of these
REDUCE_WARPS = 8  # kopt: knob REDUCE_WARPS in [4, 8, 16] warps a program
REDUCE_STAGES = 2  # kopt: knob REDUCE_STAGES in [1, 2, 3, 4] loads in flight
REDUCE_PROGRAMS = 1024  # kopt: knob REDUCE_PROGRAMS in [512, 1024, 2048, 4096] that fill a device


@triton.jit
def reduce_multiply(a, b):
    return a * b


@triton.jit
def reduce_kernel(
        # kopt: operands
        x, x_places, y, y_places, outer, n, inner, part, scale, OP: tl.constexpr,
        ARG: tl.constexpr, COLUMNS: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
        DEPTH: tl.constexpr, LANES: tl.constexpr, STAGES: tl.constexpr):
    """Values [outer, n, inner] to [outer, parts, inner]: a program reduces `part` values of n.

    COLUMNS: LANES neighbours of inner; else LANES rows, where inner is 1.
    """
    parts = tl.cdiv(n, part)
    if COLUMNS:
        blocks = tl.cdiv(inner, LANES)
        rest = tl.program_id(0) // blocks
        lane = tl.program_id(0) % blocks * LANES + tl.arange(0, LANES)[None, :]
        row = (rest // parts).to(tl.int64)
        known = lane < inner
        result = (row * parts + rest % parts) * inner + lane
        step = tl.arange(0, DEPTH)[:, None]
    else:
        rest = tl.program_id(0)
        lane = 0
        row = (rest // parts).to(tl.int64) * LANES + tl.arange(0, LANES)[:, None]
        known = row < outer
        result = row * parts + rest % parts
        step = tl.arange(0, DEPTH)[None, :]
    begin = (rest % parts).to(tl.int64) * part
    limit = tl.minimum(n - begin, part).to(tl.int32)
    base = (row * n + begin) * inner + lane
    AXIS: tl.constexpr = 0 if COLUMNS else 1
    NEUTRAL: tl.constexpr = (-float("inf") if OP == "max" else float("inf") if OP == "min" else
                             1.0 if OP == "prod" else 0.0)
    joined = tl.full([DEPTH, LANES] if COLUMNS else [LANES, DEPTH], NEUTRAL, tl.float32)
    if ARG:
        place = tl.zeros([DEPTH, LANES] if COLUMNS else [LANES, DEPTH], tl.int64)
    for start in tl.range(0, limit, DEPTH, num_stages=STAGES):
        i = start + step
        inside = (i < limit) & known
        at = base + (i.to(tl.int64) * inner if COLUMNS else i)
        value = tl.load(x + at, mask=inside, other=NEUTRAL).to(tl.float32)
        if FIRST:
            # kopt: prologue value
            if OP == "norm1":
                value = tl.abs(value)
            if OP == "norm2":
                value = value * value
            value = tl.where(inside, value, NEUTRAL)
        if ARG:
            better = value > joined if OP == "max" else value < joined
            better = (better | (value != value)) & (joined == joined)
            index = begin + i if FIRST else tl.load(x_places + at, mask=inside, other=0)
            place = tl.where(better, index, place)
            joined = tl.where(better, value, joined)
        elif OP == "max":
            joined = tl.maximum(joined, value, propagate_nan=tl.PropagateNan.ALL)
        elif OP == "min":
            joined = tl.minimum(joined, value, propagate_nan=tl.PropagateNan.ALL)
        elif OP == "prod":
            joined *= value
        else:
            joined += value
    if OP == "max" or OP == "min":
        broken = tl.max((joined != joined).to(tl.int32), AXIS, keep_dims=True) > 0
        value = (tl.max(joined, AXIS, keep_dims=True) if OP == "max" else
                 tl.min(joined, AXIS, keep_dims=True))
        value = tl.where(broken, float("nan"), value)
        if ARG:  # the first of the equal values, or of the NaNs
            found = tl.where(broken, joined != joined, joined == value)
            place = tl.min(tl.where(found, place, 9223372036854775807), AXIS, keep_dims=True)
            tl.store(y_places + result, place, mask=known)
    elif OP == "prod":
        value = tl.reduce(joined, AXIS, reduce_multiply, keep_dims=True)
    else:
        value = tl.sum(joined, AXIS, keep_dims=True)
    if LAST:
        value *= scale
        if OP == "norm2":
            value = tl.sqrt(value)
        at = result
        inside = known
        # kopt: epilogue value
    if not (ARG and LAST):
        tl.store(y + result, value, mask=known)


def reduce_tile(outer, n, inner):
    """Return values in a step, lanes, and the values of a program."""
    if inner > 1:
        lanes = min(REDUCE_LANES, 1 << (inner - 1).bit_length())
        programs = outer * -(-inner // lanes)
        depth = min(max(1, REDUCE_STEP // lanes), 1 << (n - 1).bit_length())
    else:
        depth = min(REDUCE_BLOCK, 1 << (n - 1).bit_length())
        lanes = min(REDUCE_BLOCK // depth, 1 << (outer - 1).bit_length())
        programs = -(-outer // lanes)
    splits = max(1, min(REDUCE_PROGRAMS // programs, n // (4 * depth)))
    return depth, lanes, -(-n // (splits * depth)) * depth


def reduce_launch(
        # kopt: operands
        x, x_places, y, y_places, sizes, tile, scale, op, arg, first, last):
    outer, n, inner = sizes
    depth, lanes, part = tile
    programs = outer * -(-inner // lanes) if inner > 1 else -(-outer // lanes)
    reduce_kernel[(programs * -(-n // part),)](
        # kopt: operands
        x, x_places, y, y_places, outer, n, inner, part, scale, OP=op, ARG=arg, COLUMNS=inner > 1,
        FIRST=first, LAST=last, DEPTH=depth, LANES=lanes, STAGES=REDUCE_STAGES,
        num_warps=max(1, min(REDUCE_WARPS, depth * lanes // (256 if inner > 1 else 64))))


def reduce(
        # kopt: operands
        x, dim=None, keepdim=False, op="sum", dtype=None):
    """op: sum, mean, prod, max, min, norm1, norm2, argmax or argmin. dim: one, several, or None."""
    rank = x.dim()
    dims = {d % rank for d in ([dim] if isinstance(dim, int) else dim or range(rank))}
    shape = [1 if d in dims else size for d, size in enumerate(x.shape) if keepdim or d not in dims]
    first, last = (min(dims), max(dims) + 1) if dims else (0, 0)
    if last - first > len(dims):  # they do not lie side by side
        x = x.permute(*(d for d in range(rank) if d not in dims), *sorted(dims))
        first, last = rank - len(dims), rank
    x = x.contiguous()
    outer, n, inner = (x.shape[:first].numel(), x.shape[first:last].numel(),
                       x.shape[last:].numel())
    scale = 1.0 / n if op == "mean" else 1.0
    arg = op in ("argmax", "argmin")
    op = {"mean": "sum", "argmax": "max", "argmin": "min"}.get(op, op)
    y = torch.empty(shape, dtype=torch.int64 if arg else dtype or x.dtype, device=x.device)
    if not y.numel():
        return y
    tile = reduce_tile(outer, n, inner)
    parts = -(-n // tile[2])
    if parts == 1:
        reduce_launch(
            # kopt: operands
            x, x, y, y, (outer, n, inner), tile, scale, op, arg, True, True)
        return y
    depth, lanes, _ = reduce_tile(outer, parts, inner)
    final = (depth, lanes, -(-parts // depth) * depth)
    joined = torch.empty(outer * parts * inner, dtype=torch.float32, device=x.device)
    places = torch.empty(joined.numel() if arg else 0, dtype=torch.int64, device=x.device)
    reduce_launch(
        # kopt: operands
        x, x, joined, places, (outer, n, inner), tile, 1.0, op, arg, True, False)
    reduce_launch(
        # kopt: operands
        joined, places, y, y, (outer, parts, inner), final, scale, op, arg, False, True)
    return y
