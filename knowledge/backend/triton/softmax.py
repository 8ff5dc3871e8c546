"""Softmax or log-softmax over one dimension; a row that fits in registers is read once.

Many programs share a longer row: they measure its parts, then others scale them. Programs take
their turns from a counter: a span of rows is measured, the span before it is scaled out of the
cache. A program waits only for programs with earlier turns, which run already, so it never waits
for ever.
"""

import torch
import triton
import triton.language as tl

SOFTMAX_WHOLE = 16384  # kopt: knob SOFTMAX_WHOLE in [4096, 8192, 16384, 32768] longest such row
SOFTMAX_TILE = 2048  # kopt: knob SOFTMAX_TILE in [512, 1024, 2048, 4096] elements of short rows
SOFTMAX_BLOCK = 8192  # kopt: knob SOFTMAX_BLOCK in [2048, 4096, 8192, 16384] of a long row
SOFTMAX_SPAN = 1048576  # kopt: knob SOFTMAX_SPAN in [524288, 1048576, 2097152] elements of a span
SOFTMAX_PER_THREAD = 16  # kopt: knob SOFTMAX_PER_THREAD in [4, 8, 16, 32] elements of a thread
SOFTMAX_STAGES = 2  # kopt: knob SOFTMAX_STAGES in [1, 2, 3] loads of long columns in flight
SOFTMAX_REGISTERS = 32  # kopt: knob SOFTMAX_REGISTERS in [0, 32, 40, 64] if threads are 1,024


@triton.jit
def softmax_whole(
        # kopt: operands
        x, y, rows, n, inner, COLUMNS: tl.constexpr, LOG: tl.constexpr, ROWS: tl.constexpr,
        WIDTH: tl.constexpr):
    """ROWS rows a program, each in registers; COLUMNS: a row goes through memory by `inner`."""
    i = tl.arange(0, WIDTH)[None, :]
    if COLUMNS:
        blocks = tl.cdiv(inner, ROWS)
        lane = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)[:, None]
        inside = (lane < inner) & (i < n)
        at = (tl.program_id(0) // blocks).to(tl.int64) * n * inner + lane + i.to(tl.int64) * inner
    else:
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (i < n)
        at = row.to(tl.int64) * n + i
    value = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
    # kopt: prologue value
    value = tl.where(inside, value, -float("inf"))
    value -= tl.max(value, 1, keep_dims=True)
    power = tl.exp2(value * 1.4426950408889634)
    total = tl.sum(power, 1, keep_dims=True)
    value = value - tl.log(total) if LOG else power / total
    # kopt: epilogue value
    tl.store(y + at, value, mask=inside)


@triton.jit
def softmax_spread(
        # kopt: operands
        x, y, measured, turns, rows, n, parts, units, LOG: tl.constexpr, PARTS: tl.constexpr,
        WIDTH: tl.constexpr):
    """A part of a row: its highest value and its sum of powers, or its results."""
    turn = tl.atomic_add(turns, 1)
    phase = turn // units
    scales = (phase > 0) & (phase % 2 == 0)
    unit = tl.where(scales, phase // 2 - 1, (phase + 1) // 2) * units + turn % units
    row = unit // parts
    if row < rows:
        i = unit % parts * WIDTH + tl.arange(0, WIDTH)
        inside = i < n
        at = row.to(tl.int64) * n + i
        measured += row.to(tl.int64) * parts * 2
        if scales:
            while tl.atomic_add(turns + 1 + row, 0, sem="acquire") < parts:
                pass
            tl.debug_barrier()
            p = tl.arange(0, PARTS)
            tops = tl.load(measured + p * 2, mask=p < parts, other=-3.4028234663852886e38)
            sums = tl.load(measured + p * 2 + 1, mask=p < parts, other=0.0)
            top = tl.max(tops, 0)
            total = tl.sum(sums * tl.exp2((tops - top) * 1.4426950408889634), 0)
            value = tl.load(x + at, mask=inside, other=-float("inf"),
                            eviction_policy="evict_first").to(tl.float32)
            # kopt: prologue value
            value -= top
            value = value - tl.log(total) if LOG else \
                tl.exp2(value * 1.4426950408889634) * (1.0 / total)
            # kopt: epilogue value
            tl.store(y + at, value, mask=inside, eviction_policy="evict_first")
        else:
            value = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
            # kopt: prologue value
            value = tl.where(inside, value, -float("inf"))
            top = tl.maximum(tl.max(value, 0), -3.4028234663852886e38)  # -inf - -inf is NaN
            total = tl.sum(tl.exp2((value - top) * 1.4426950408889634), 0)
            tl.store(measured + unit % parts * 2, top)
            tl.store(measured + unit % parts * 2 + 1, total)
            tl.debug_barrier()
            tl.atomic_add(turns + 1 + row, 1, sem="release")


@triton.jit
def softmax_columns(
        # kopt: operands
        x, y, n, inner, LOG: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr,
        WIDTH: tl.constexpr, STAGES: tl.constexpr):
    """ROWS neighbours, each of which goes through memory by `inner`, in two reads."""
    blocks = tl.cdiv(inner, ROWS)
    first = (tl.program_id(0) // blocks).to(tl.int64) * n * inner
    lane = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)[:, None, None]
    step = tl.arange(0, DEPTH)[None, :, None] * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    top = tl.full([ROWS, 1, WIDTH], -3.4028234663852886e38, tl.float32)  # -inf - -inf is NaN
    total = tl.zeros([ROWS, 1, WIDTH], tl.float32)
    for start in tl.range(0, n, DEPTH * WIDTH, num_stages=STAGES):
        i = start + step
        inside = (i < n) & (lane < inner)
        at = first + lane + i.to(tl.int64) * inner
        value = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
        # kopt: prologue value
        value = tl.where(inside, value, -float("inf"))
        higher = tl.maximum(top, tl.max(value, 1, keep_dims=True))
        total *= tl.exp2((top - higher) * 1.4426950408889634)
        total += tl.sum(tl.exp2((value - higher) * 1.4426950408889634), 1, keep_dims=True)
        top = higher
    most = tl.max(top, 2, keep_dims=True)
    total = tl.sum(total * tl.exp2((top - most) * 1.4426950408889634), 2, keep_dims=True)
    scale = 1.0 / total
    for start in tl.range(0, n, DEPTH * WIDTH, num_stages=STAGES):
        i = start + step
        inside = (i < n) & (lane < inner)
        at = first + lane + i.to(tl.int64) * inner
        value = tl.load(x + at, mask=inside, other=-float("inf"),
                        eviction_policy="evict_first").to(tl.float32)
        # kopt: prologue value
        value -= most
        value = value - tl.log(total) if LOG else tl.exp2(value * 1.4426950408889634) * scale
        # kopt: epilogue value
        tl.store(y + at, value, mask=inside)


def softmax(
        # kopt: operands
        x, dim=-1, log=False, dtype=None):
    x = x.contiguous()
    y = torch.empty_like(x, dtype=dtype)
    if not x.numel():
        return y
    shape = x.shape if x.dim() else (1,)
    dim %= len(shape)
    n, inner = shape[dim], 1
    for size in shape[dim + 1:]:
        inner *= size
    rows = x.numel() // n // inner
    columns = inner > 1
    width = 1 << (n - 1).bit_length()
    height = max(1, SOFTMAX_TILE // width)
    if columns:
        height = min(max(32, height), 1 << (inner - 1).bit_length())
    if width * height <= max(SOFTMAX_WHOLE, SOFTMAX_TILE):
        programs = rows * -(-inner // height) if columns else -(-rows // height)
        warps = max(1, min(32, height * width // (32 * SOFTMAX_PER_THREAD)))
        limited = warps == 32 and height * width <= 16384 and x.is_cuda and not torch.version.hip
        softmax_whole[(programs,)](
            # kopt: operands
            x, y, rows, n, inner, COLUMNS=columns, LOG=log, ROWS=height, WIDTH=width,
            num_warps=warps, **({"maxnreg": SOFTMAX_REGISTERS or None} if limited else {}))
    elif columns:
        height, depth = min(64, 1 << (inner - 1).bit_length()), 4
        softmax_columns[(rows * -(-inner // height),)](
            # kopt: operands
            x, y, n, inner, LOG=log, ROWS=height, DEPTH=depth,
            WIDTH=max(1, SOFTMAX_BLOCK // depth // height), STAGES=SOFTMAX_STAGES,
            num_warps=max(1, min(32, SOFTMAX_BLOCK // (32 * SOFTMAX_PER_THREAD))))
    else:
        parts = -(-n // SOFTMAX_BLOCK)
        units = min(rows, max(1, SOFTMAX_SPAN // n)) * parts
        turns = torch.zeros(rows + 1, dtype=torch.int32, device=x.device)
        measured = torch.empty(rows * parts * 2, dtype=torch.float32, device=x.device)
        softmax_spread[((2 * -(-rows * parts // units) + 1) * units,)](
            # kopt: operands
            x, y, measured, turns, rows, n, parts, units, LOG=log,
            PARTS=1 << (parts - 1).bit_length(), WIDTH=SOFTMAX_BLOCK,
            num_warps=max(1, min(32, SOFTMAX_BLOCK // (32 * SOFTMAX_PER_THREAD))))
    return y
