"""The gradients of layer and RMS norm by input, weight and bias: each value is read once.

A program takes rows in turn and keeps the sums over its rows, which a second launch joins.
"""

import torch
import triton
import triton.language as tl

NORM_BACKWARD_TILE = 4096  # kopt: knob NORM_BACKWARD_TILE in [512, 1024, 2048, 4096] values a tile
NORM_BACKWARD_PER_THREAD = 16  # kopt: knob NORM_BACKWARD_PER_THREAD in [8, 16, 32] values a thread
NORM_BACKWARD_PROGRAMS = 2  # kopt: knob NORM_BACKWARD_PROGRAMS in [1, 2, 4, 8] a multiprocessor


@triton.jit
def norm_backward_rows(x, dy, weight, dx, weights, biases, rows, n, eps, CENTER: tl.constexpr,
                       WEIGHT: tl.constexpr, OF_WEIGHT: tl.constexpr, OF_BIAS: tl.constexpr,
                       ROWS: tl.constexpr, WIDTH: tl.constexpr):
    i = tl.arange(0, WIDTH)[None, :]
    weight_sum = tl.zeros([ROWS, WIDTH], tl.float32)
    bias_sum = tl.zeros([ROWS, WIDTH], tl.float32)
    factor = 1.0
    if WEIGHT:
        factor = tl.load(weight + i, mask=i < n, other=0.0).to(tl.float32)
    for first in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (i < n)
        at = row.to(tl.int64) * n + i
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        if CENTER:
            value = tl.where(inside, value - tl.sum(value, 1, keep_dims=True) / n, 0.0)
        scale = 1.0 / tl.sqrt(tl.sum(value * value, 1, keep_dims=True) / n + eps)
        value *= scale
        if OF_WEIGHT:
            weight_sum += gradient * value
        if OF_BIAS:
            bias_sum += gradient
        gradient *= factor
        result = gradient - value * (tl.sum(gradient * value, 1, keep_dims=True) / n)
        if CENTER:
            result -= tl.sum(gradient, 1, keep_dims=True) / n
        tl.store(dx + at, result * scale, mask=inside)
    own = tl.program_id(0).to(tl.int64) * n + i
    if OF_WEIGHT:
        tl.store(weights + own, tl.sum(weight_sum, 0, keep_dims=True), mask=i < n)
    if OF_BIAS:
        tl.store(biases + own, tl.sum(bias_sum, 0, keep_dims=True), mask=i < n)


@triton.jit
def norm_backward_join(parts, y, n, programs, DEPTH: tl.constexpr, LANES: tl.constexpr):
    """Sum what the programs have, LANES columns each."""
    column = tl.program_id(0) * LANES + tl.arange(0, LANES)[None, :]
    sums = tl.zeros([DEPTH, LANES], tl.float32)
    for first in range(0, programs, DEPTH):
        part = first + tl.arange(0, DEPTH)[:, None]
        sums += tl.load(parts + part.to(tl.int64) * n + column,
                        mask=(part < programs) & (column < n), other=0.0)
    tl.store(y + column, tl.sum(sums, 0, keep_dims=True), mask=column < n)


def norm_backward_units(x):
    try:
        return torch.cuda.get_device_properties(x.device).multi_processor_count
    except (AssertionError, RuntimeError, ValueError):
        return 2  # interpreted


def norm_backward(x, dy, weight=None, eps=1e-5, dims=1, kind="layer", of="x"):
    """Return the gradients of a norm over the last `dims` dimensions: a tuple.

    kind: layer or rms; of: x, xw or xwb: by x, by the weight too, by the bias too.
    """
    n = x.shape[x.dim() - dims:].numel()
    x, dy = x.contiguous(), dy.contiguous()
    dx, rows = torch.empty_like(x), x.numel() // max(n, 1)
    width = 1 << (n - 1).bit_length()
    height = min(max(1, NORM_BACKWARD_TILE // width), 1 << (max(rows, 1) - 1).bit_length())
    programs = max(1, min(-(-rows // height),
                          NORM_BACKWARD_PROGRAMS * norm_backward_units(x)))
    sums = [torch.empty(programs, n, dtype=torch.float32, device=x.device) if name in of else dx
            for name in "wb"]
    norm_backward_rows[(programs,)](
        x, dy, dx if weight is None else weight.contiguous(), dx, *sums, rows, n, eps,
        CENTER=kind == "layer", WEIGHT=weight is not None, OF_WEIGHT="w" in of, OF_BIAS="b" in of,
        ROWS=height, WIDTH=width,
        num_warps=max(1, min(32, height * width // (32 * NORM_BACKWARD_PER_THREAD))))
    results = [dx]
    for name, parts in zip("wb", sums, strict=True):
        if name in of:
            results.append(torch.empty(weight.shape, dtype=weight.dtype, device=weight.device))
            norm_backward_join[(-(-n // 32),)](parts, results[-1], n, programs, DEPTH=32,
                                                      LANES=32)
    return tuple(results)
