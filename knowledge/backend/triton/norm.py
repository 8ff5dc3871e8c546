"""Layer, RMS, group and instance norm, and division by an L1 or L2 norm, in one read if rows fit.

A row that does not fit in registers is read twice: many programs measure its parts, then scale
them.
"""

import torch
import triton
import triton.language as tl

NORM_WHOLE = 16384  # kopt: knob NORM_WHOLE in [4096, 8192, 16384, 32768] longest row in registers
NORM_TILE = 2048  # kopt: knob NORM_TILE in [512, 1024, 2048, 4096, 8192] elements of short rows
NORM_PART = 8192  # kopt: knob NORM_PART in [8192, 16384, 32768, 65536] of a long row in a program
NORM_BLOCK = 4096  # kopt: knob NORM_BLOCK in [1024, 2048, 4096, 8192] elements of a long row's step
NORM_PER_THREAD = 16  # kopt: knob NORM_PER_THREAD in [4, 8, 16, 32] elements of a thread
NORM_STAGES = 1  # kopt: knob NORM_STAGES in [1, 2, 3] loads of a long row in flight
NORM_REGISTERS = 0  # kopt: knob NORM_REGISTERS in [0, 32, 40, 64] if threads are 1,024


@triton.jit
def norm_factor(total, inner_eps, outer_eps, POWER: tl.constexpr):
    total += inner_eps
    if POWER == 2:
        total = tl.sqrt(total)
    return 1.0 / tl.maximum(total, outer_eps, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def norm_affine(value, weight, bias, channel, inside, WEIGHT: tl.constexpr, BIAS: tl.constexpr):
    if WEIGHT:
        value *= tl.load(weight + channel, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        value += tl.load(bias + channel, mask=inside, other=0.0).to(tl.float32)
    return value


@triton.jit
def norm_whole(
        # kopt: operands
        x, y, weight, bias, rows, n, inner, groups, spatial, scale, inner_eps, outer_eps,
        CENTER: tl.constexpr, POWER: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
        COLUMNS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """ROWS rows a program, each in registers; COLUMNS: a row goes through memory by `inner`."""
    i = tl.arange(0, WIDTH)[None, :]
    if COLUMNS:
        blocks = tl.cdiv(inner, ROWS)
        row = tl.program_id(0) // blocks
        lane = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)[:, None]
        inside = (lane < inner) & (i < n)
        at = row.to(tl.int64) * n * inner + lane + i.to(tl.int64) * inner
    else:
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (i < n)
        at = row.to(tl.int64) * n + i
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    # kopt: prologue value
    if CENTER:
        value -= tl.sum(tl.where(inside, value, 0.0), 1, keep_dims=True) / n
    apart = tl.where(inside, value, 0.0)
    total = tl.sum(apart * apart if POWER == 2 else tl.abs(apart), 1, keep_dims=True)
    value *= norm_factor(total * scale, inner_eps, outer_eps, POWER)
    channel = row % groups * (n // spatial) + i // spatial
    value = norm_affine(value, weight, bias, channel, inside, WEIGHT, BIAS)
    # kopt: epilogue value
    tl.store(y + at, value, mask=inside)


@triton.jit
def norm_first(
        # kopt: operands
        x, base):
    at = base + tl.arange(0, 1)
    inside = at >= base
    value = tl.load(x + at, mask=inside).to(tl.float32)
    # kopt: prologue value
    return tl.sum(value, 0)


@triton.jit
def norm_measure(
        # kopt: operands
        x, measured, n, part, CENTER: tl.constexpr, POWER: tl.constexpr, BLOCK: tl.constexpr,
        STAGES: tl.constexpr):
    """Mean of a part of a row, and the sum of (distances to it, if CENTER) to the POWER."""
    parts = tl.cdiv(n, part)
    begin = (tl.program_id(0) % parts).to(tl.int64) * part
    limit = tl.minimum(n - begin, part).to(tl.int32)
    base = (tl.program_id(0) // parts).to(tl.int64) * n + begin
    first = 0.0
    if CENTER:  # distances to the first value lose no digits where the mean is large
        first = norm_first(
            # kopt: operands
            x, base)
    sums = tl.zeros([BLOCK], tl.float32)
    powers = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, limit, BLOCK, num_stages=STAGES):
        i = start + tl.arange(0, BLOCK)
        inside = i < limit
        at = base + i
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        # kopt: prologue value
        value = tl.where(inside, value - first, 0.0)
        sums += value
        powers += value * value if POWER == 2 else tl.abs(value)
    mean = tl.sum(sums, 0) / limit
    total = tl.sum(powers, 0)
    if CENTER:
        total -= mean * mean * limit
    tl.store(measured + tl.program_id(0) * 2, mean + first)
    tl.store(measured + tl.program_id(0) * 2 + 1, total)


@triton.jit
def norm_apply(
        # kopt: operands
        x, y, weight, bias, measured, n, part, groups, spatial, scale, inner_eps, outer_eps,
        CENTER: tl.constexpr, POWER: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
        PARTS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Scale a part of a row; the parts that were read last come first, from the cache."""
    parts = tl.cdiv(n, part)
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    row = program // parts
    begin = (program % parts).to(tl.int64) * part
    limit = tl.minimum(n - begin, part).to(tl.int32)
    p = tl.arange(0, PARTS)
    count = tl.minimum(n - p.to(tl.int64) * part, part).to(tl.float32)
    known = p < parts
    total = tl.load(measured + (row * parts + p) * 2 + 1, mask=known, other=0.0)
    mean = 0.0
    if CENTER:
        means = tl.load(measured + (row * parts + p) * 2, mask=known, other=0.0)
        mean = tl.sum(tl.where(known, means * count, 0.0), 0) / n
        total += tl.where(known, (means - mean) * (means - mean) * count, 0.0)
    factor = norm_factor(tl.sum(total, 0) * scale, inner_eps, outer_eps, POWER)
    for start in tl.range(0, limit, BLOCK, num_stages=STAGES):
        i = start + tl.arange(0, BLOCK)
        inside = i < limit
        at = row.to(tl.int64) * n + begin + i
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        # kopt: prologue value
        value = (value - mean) * factor
        channel = row % groups * (n // spatial) + (begin.to(tl.int32) + i) // spatial
        value = norm_affine(value, weight, bias, channel, inside, WEIGHT, BIAS)
        # kopt: epilogue value
        tl.store(y + at, value, mask=inside)


def norm(
        # kopt: operands
        x, weight=None, bias=None, eps=0.0, dim=-1, groups=0, kind="layer"):
    """Normalise over neighbouring dimensions `dim` (None: all), or over `groups` of dimension 1.

    kind: layer ((x - mean) / sqrt(variance + eps)), rms (x / sqrt(mean(x²) + eps)), l1, l2
    (x / max(norm, eps)) or l1_mean. weight and bias: of the last dimensions, or one a channel.
    """
    rank, shape = x.dim(), x.shape
    x = x.contiguous()
    spatial = x.shape[2:].numel() if groups else 1
    if groups:
        rows, n, inner = x.shape[0] * groups, x.shape[1] // groups * spatial, 1
    else:
        dims = {d % rank for d in ([dim] if isinstance(dim, int) else dim or range(rank))}
        first, last = min(dims), max(dims) + 1
        rows, n, inner = (x.shape[:first].numel(), x.shape[first:last].numel(),
                          x.shape[last:].numel())
    width = 1 << (n - 1).bit_length()
    height = max(1, NORM_TILE // width)
    if inner > 1:
        height = min(max(32, height), 1 << (inner - 1).bit_length())
    whole = width * height <= max(NORM_WHOLE, NORM_TILE)
    if inner > 1 and not whole:  # long and strided: as rows
        x, rows, inner = x.view(rows, n, inner).transpose(1, 2).contiguous(), rows * inner, 1
        y = torch.empty_like(x)
        result = y.transpose(1, 2)
    else:
        y = result = torch.empty_like(x)
    if not x.numel():
        return y
    scale = 1.0 if kind in ("l1", "l2") else 1.0 / n
    inner_eps, outer_eps = (eps, 0.0) if kind in ("layer", "rms") else (0.0, eps)
    flags = dict(CENTER=kind == "layer", POWER=1 if kind.startswith("l1") else 2,
                 WEIGHT=weight is not None, BIAS=bias is not None)
    weight, bias = (x if part is None else part.contiguous() for part in (weight, bias))
    if whole:
        programs = rows * -(-inner // height) if inner > 1 else -(-rows // height)
        warps = max(1, min(32, height * width // (32 * NORM_PER_THREAD)))
        limited = warps == 32 and height * width <= 16384 and x.is_cuda and not torch.version.hip
        norm_whole[(programs,)](
            # kopt: operands
            x, y, weight, bias, rows, n, inner, groups or 1, spatial, scale, inner_eps, outer_eps,
            COLUMNS=inner > 1, ROWS=height, WIDTH=width, **flags, num_warps=warps,
            **({"maxnreg": NORM_REGISTERS or None} if limited else {}))
        return y
    part = -(-max(NORM_PART, -(-n // 4096)) // NORM_BLOCK) * NORM_BLOCK
    parts = -(-n // part)
    measured = torch.empty(rows * parts * 2, dtype=torch.float32, device=x.device)
    sizes = dict(CENTER=flags["CENTER"], POWER=flags["POWER"], BLOCK=NORM_BLOCK,
                 STAGES=NORM_STAGES, num_warps=max(1, NORM_BLOCK // (32 * NORM_PER_THREAD)))
    norm_measure[(rows * parts,)](
        # kopt: operands
        x, measured, n, part, **sizes)
    norm_apply[(rows * parts,)](
        # kopt: operands
        x, y, weight, bias, measured, n, part, groups or 1, spatial, scale, inner_eps, outer_eps,
        PARTS=1 << (parts - 1).bit_length(), **flags | sizes)
    return result.reshape(shape)
