"""Quantise by the largest magnitude: int8, fp8 or quantised and back, with a scale a row or one.

A row is read once where it fits into registers. Every step rounds as PyTorch's does, also the steps
in float16 and bfloat16, and halves go to the even neighbour: the results are PyTorch's to the bit.
"""

import torch
import triton
import triton.language as tl

QUANTISE_WHOLE = 16384  # kopt: knob QUANTISE_WHOLE in [4096, 8192, 16384, 32768] values of a row
QUANTISE_TILE = 4096  # kopt: knob QUANTISE_TILE in [1024, 2048, 4096, 8192] values of a program
QUANTISE_WARPS = 8  # kopt: knob QUANTISE_WARPS in [2, 4, 8, 16] warps of a program
QUANTISE_PARTS = 1024  # kopt: knob QUANTISE_PARTS in [512, 1024, 2048] parts of a whole tensor


@triton.jit
def quantise_load(x, at, inside):
    return tl.load(x + at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def quantise_magnitude(value):
    """Return magnitudes as integers: these have the order of the floats, and NaN is the largest."""
    return value.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def quantise_scale(bits, limit, eps, FLOOR: tl.constexpr, INVERSE: tl.constexpr,
                   STEP: tl.constexpr):
    largest = bits.to(tl.float32, bitcast=True)
    if FLOOR == "largest":
        largest = tl.maximum(largest, eps, propagate_nan=tl.PropagateNan.ALL)
        largest = largest.to(STEP).to(tl.float32)
    if INVERSE:  # as PyTorch divides a number by a tensor
        scale = tl.div_rn(tl.full(largest.shape, 1.0, tl.float32), largest)
        scale = scale.to(STEP).to(tl.float32) * limit
    else:
        scale = tl.div_rn(largest, tl.full(largest.shape, limit, tl.float32))
    scale = scale.to(STEP).to(tl.float32)
    if FLOOR == "scale":
        scale = tl.maximum(scale, eps, propagate_nan=tl.PropagateNan.ALL)
    if FLOOR == "add":
        scale = scale + eps
    return scale.to(STEP).to(tl.float32)


@triton.jit
def quantise_divide(value, scale):
    """Divide by a row's reciprocal and correct the quotient: fewer instructions than `div_rn`."""
    wider = tl.where(tl.abs(scale) < 7.9e-31, 1.2676506002282294e30, 1.0)  # 2 ** 100
    scale *= wider
    inverse = tl.div_rn(tl.full(scale.shape, 1.0, tl.float32), scale)
    value *= wider
    quotient = value * inverse
    rest = tl.fma(-quotient, tl.broadcast_to(scale, value.shape), value)
    exact = tl.fma(rest, tl.broadcast_to(inverse, value.shape), quotient)
    return tl.where((scale != 0.0) & (tl.abs(scale) < float("inf")), exact, quotient)


@triton.jit
def quantise_store(value, y, at, inside, scale, low, high, INVERSE: tl.constexpr,
                   ROUND: tl.constexpr, CLAMP: tl.constexpr, BACK: tl.constexpr,
                   NARROW: tl.constexpr, STEP: tl.constexpr):
    value = value * scale if INVERSE else quantise_divide(value, scale)
    value = value.to(STEP).to(tl.float32)
    if CLAMP:  # to whole numbers, so that it may come before the rounding
        value = tl.clamp(value, low, high, propagate_nan=tl.PropagateNan.ALL)
    if ROUND:  # the sum has no digits behind the point; what is too large has none anyway
        whole = (value + 12582912.0) - 12582912.0
        value = tl.where(tl.abs(value) < 4194304.0, whole, value)
    if tl.float8e4nv == NARROW:  # whole multiples of an eighth of its power of two
        power = (value.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
        eighths = tl.maximum(power, 0.015625) * 1572864.0
        value = (value + eighths) - eighths
    if BACK:
        value = value.to(NARROW).to(tl.float32)
        value = quantise_divide(value, scale) if INVERSE else value * scale
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def quantise_rows(x, y, scales, rows, n, limit, eps, low, high, FLOOR: tl.constexpr,
                  INVERSE: tl.constexpr, ROUND: tl.constexpr, CLAMP: tl.constexpr,
                  BACK: tl.constexpr, NARROW: tl.constexpr, STEP: tl.constexpr,
                  WHOLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    first = row[:, None].to(tl.int64) * n
    there = row[:, None] < rows
    if WHOLE:
        inside = there & (column < n)
        value = quantise_load(x, first + column, inside)
        bits = tl.max(quantise_magnitude(value), 1)
    else:
        most = tl.zeros([ROWS, BLOCK], tl.int32)
        for start in range(0, n, BLOCK):
            inside = there & (start + column < n)
            value = quantise_load(x, first + start + column, inside)
            most = tl.maximum(most, quantise_magnitude(value))
        bits = tl.max(most, 1)
    scale = quantise_scale(bits, limit, eps, FLOOR, INVERSE, STEP)
    tl.store(scales + row, scale.to(scales.dtype.element_ty), mask=row < rows)
    if WHOLE:
        quantise_store(value, y, first + column, inside, scale[:, None], low, high, INVERSE, ROUND,
                       CLAMP, BACK, NARROW, STEP)
    else:
        for start in range(0, n, BLOCK):
            inside = there & (start + column < n)
            value = quantise_load(x, first + start + column, inside)
            quantise_store(value, y, first + start + column, inside, scale[:, None], low, high,
                           INVERSE, ROUND, CLAMP, BACK, NARROW, STEP)


@triton.jit
def quantise_largest(x, parts, size, BLOCK: tl.constexpr):
    """Write the largest magnitude of each program's share."""
    most = tl.zeros([BLOCK], tl.int32)
    first = tl.program_id(0).to(tl.int64) * BLOCK
    for start in range(first, size, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK).to(tl.int64)
        most = tl.maximum(most, quantise_magnitude(quantise_load(x, at, at < size)))
    tl.store(parts + tl.program_id(0), tl.max(most, 0))


@triton.jit
def quantise_tensor(x, y, scales, parts, size, limit, eps, low, high, FLOOR: tl.constexpr,
                    INVERSE: tl.constexpr, ROUND: tl.constexpr, CLAMP: tl.constexpr,
                    BACK: tl.constexpr, NARROW: tl.constexpr, STEP: tl.constexpr,
                    PARTS: tl.constexpr, BLOCK: tl.constexpr):
    bits = tl.max(tl.load(parts + tl.arange(0, PARTS)), 0, keep_dims=True)
    scale = quantise_scale(bits, limit, eps, FLOOR, INVERSE, STEP)
    tl.store(scales + tl.arange(0, 1), scale.to(scales.dtype.element_ty),
             mask=tl.arange(0, 1) == tl.program_id(0))
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    quantise_store(quantise_load(x, at, at < size), y, at, at < size, scale, low, high, INVERSE,
                   ROUND, CLAMP, BACK, NARROW, STEP)


def quantise_step(dtype):
    return getattr(tl, {torch.float8_e4m3fn: "float8e4nv"}.get(dtype, str(dtype)[6:]))


def quantise(x, dim=-1, limit=127.0, low=None, high=None, dtype=None, eps=0.0, floor="",
             inverse=False, rounded=True, back=False, wide=False, result=None):
    """Return x / scale in `dtype` and the scale, the largest |x| / limit: of a row, or dim=None.

    floor: `eps` is the least `largest`, the least `scale`, or is `add`ed to it. inverse: x * scale
    with limit / largest. back: times the scale again, in dtype `result`, usually that of x.
    wide: steps are float32's, whatever the dtype of x.
    """
    x = x.contiguous()
    own = torch.float32 if wide else x.dtype
    y = torch.empty(x.shape, dtype=(result or own) if back else dtype, device=x.device)
    scales = torch.empty(() if dim is None else (*x.shape[:-1], 1), dtype=own, device=x.device)
    shared = dict(
        FLOOR=floor, INVERSE=inverse, ROUND=rounded, CLAMP=low is not None, BACK=back,
        NARROW=quantise_step(dtype or own), STEP=quantise_step(own), num_warps=QUANTISE_WARPS)
    bounds = tuple(map(float, (limit, eps, low or 0, high or 0)))
    if not x.numel():
        return y, scales
    if dim is None:
        size = x.numel()
        programs = min(QUANTISE_PARTS, 1 << (-(-size // QUANTISE_TILE) - 1).bit_length())
        parts = torch.empty(programs, dtype=torch.int32, device=x.device)
        quantise_largest[(programs,)](x, parts, size, BLOCK=QUANTISE_TILE,
                                      num_warps=QUANTISE_WARPS)
        quantise_tensor[(-(-size // QUANTISE_TILE),)](
            x, y, scales, parts, size, *bounds, PARTS=programs, BLOCK=QUANTISE_TILE, **shared)
        return y, scales
    n = x.shape[-1]
    whole = n <= QUANTISE_WHOLE
    block = 1 << (n - 1).bit_length() if whole else QUANTISE_TILE
    height = max(1, QUANTISE_TILE // block) if whole else 1
    quantise_rows[(-(-scales.numel() // height),)](
        x, y, scales, scales.numel(), n, *bounds, WHOLE=whole, ROWS=height, BLOCK=block, **shared)
    return y, scales
