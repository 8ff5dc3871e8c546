"""The gradient of softmax or log-softmax over one dimension, from its result or from its input."""

import torch
import triton
import triton.language as tl

SOFTMAX_BACKWARD_WHOLE = 16384  # kopt: knob SOFTMAX_BACKWARD_WHOLE in [4096, 8192, 16384, 32768]
SOFTMAX_BACKWARD_TILE = 2048  # kopt: knob SOFTMAX_BACKWARD_TILE in [1024, 2048, 4096, 8192]
SOFTMAX_BACKWARD_BLOCK = 4096  # kopt: knob SOFTMAX_BACKWARD_BLOCK in [1024, 2048, 4096, 8192]
SOFTMAX_BACKWARD_PER_THREAD = 16  # kopt: knob SOFTMAX_BACKWARD_PER_THREAD in [8, 16, 32] elements


@triton.jit
def softmax_backward_whole(x, dy, dx, rows, n, inner, INPUT: tl.constexpr, LOG: tl.constexpr,
                           COLUMNS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
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
    OUTSIDE: tl.constexpr = -float("inf") if INPUT or LOG else 0.0
    value = tl.load(x + at, mask=inside, other=OUTSIDE).to(tl.float32)
    given = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
    if INPUT:
        top = tl.max(value, 1, keep_dims=True)
        value = tl.exp(value - tl.where(top == -float("inf"), 0.0, top))
        value /= tl.sum(value, 1, keep_dims=True)
    elif LOG:
        value = tl.exp(value)
    if LOG:
        result = given - value * tl.sum(given, 1, keep_dims=True)
    else:
        result = value * (given - tl.sum(tl.where(inside, value * given, 0.0), 1, keep_dims=True))
    tl.store(dx + at, result, mask=inside)


@triton.jit
def softmax_backward_long(x, dy, dx, n, inner, INPUT: tl.constexpr, LOG: tl.constexpr,
                          BLOCK: tl.constexpr):
    """One row, read twice: its sums, then the gradient."""
    base = (tl.program_id(0) // inner).to(tl.int64) * n * inner + tl.program_id(0) % inner
    top = tl.full([BLOCK], -3.4028234663852886e38, tl.float32)  # finite: -inf - -inf is NaN
    total = tl.zeros([BLOCK], tl.float32)
    joined = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        inside = i < n
        at = base + i.to(tl.int64) * inner
        given = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        if INPUT:
            value = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(top, value)
            shrink, power = tl.exp(top - higher), tl.exp(value - higher)
            total = total * shrink + power
            joined = joined + given if LOG else joined * shrink + power * given
            top = higher
        elif LOG:
            joined += given
        else:
            joined += tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * given
    most = 0.0
    scale = 1.0
    if INPUT:
        most = tl.max(top, 0)
        shrink = tl.exp(top - most)
        scale = 1.0 / tl.sum(total * shrink, 0)
        joined = joined if LOG else joined * shrink * scale
    whole = tl.sum(joined, 0)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        inside = i < n
        at = base + i.to(tl.int64) * inner
        given = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        if INPUT or LOG:
            value = tl.exp(value - most) * scale
        tl.store(dx + at, given - value * whole if LOG else value * (given - whole), mask=inside)


def softmax_backward(x, dy, dim=-1, log=False, of_input=False):
    """The gradient by softmax's input, of its result x, or of_input: of its input x."""
    dim %= x.dim()
    x, dy = x.contiguous(), dy.contiguous()
    dx = torch.empty_like(x)
    if not x.numel():
        return dx
    rows, n, inner = x.shape[:dim].numel(), x.shape[dim], x.shape[dim + 1:].numel()
    width = 1 << (n - 1).bit_length()
    height = max(1, SOFTMAX_BACKWARD_TILE // width)
    if inner > 1:
        height = min(max(32, height), 1 << (inner - 1).bit_length())
    if width * height > max(SOFTMAX_BACKWARD_WHOLE, SOFTMAX_BACKWARD_TILE):
        softmax_backward_long[(rows * inner,)](
            x, dy, dx, n, inner, of_input, log, BLOCK=SOFTMAX_BACKWARD_BLOCK,
            num_warps=max(1, SOFTMAX_BACKWARD_BLOCK // (32 * SOFTMAX_BACKWARD_PER_THREAD)))
        return dx
    programs = rows * -(-inner // height) if inner > 1 else -(-rows // height)
    warps = max(1, min(32, height * width // (32 * SOFTMAX_BACKWARD_PER_THREAD)))
    softmax_backward_whole[(programs,)](
        x, dy, dx, rows, n, inner, of_input, log, COLUMNS=inner > 1, ROWS=height, WIDTH=width,
        num_warps=warps)
    return dx
