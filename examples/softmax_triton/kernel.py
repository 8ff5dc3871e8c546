"""Softmax over the rows of a bfloat16 matrix: one program a row, three passes over it."""

import triton
import triton.language as tl

NUM_WARPS = 8  # kopt: knob NUM_WARPS in [1, 2, 4, 8, 16] warps that share one row
NUM_STAGES = 1  # kopt: knob NUM_STAGES in [1, 2, 3, 4] steps of a loop in flight


@triton.jit
def softmax_kernel(
    x,
    out,
    cols,
    BLOCK: tl.constexpr = 128,  # kopt: knob BLOCK in [64, 128, 256, 512, 1024, 2048, 4096, 8192] columns a step
):
    row = tl.program_id(0).to(tl.int64) * cols
    lanes = tl.arange(0, BLOCK)

    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + lanes
        value = tl.load(x + row + at, mask=at < cols, other=float("-inf")).to(tl.float32)
        largest = tl.maximum(largest, value)
    peak = tl.max(largest, 0)

    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + lanes
        value = tl.load(x + row + at, mask=at < cols, other=float("-inf")).to(tl.float32)
        total += tl.exp(value - peak)
    scale = 1.0 / tl.sum(total, 0)

    for start in range(0, cols, BLOCK):
        at = start + lanes
        value = tl.load(x + row + at, mask=at < cols, other=float("-inf")).to(tl.float32)
        tl.store(out + row + at, tl.exp(value - peak) * scale, mask=at < cols)


def softmax(x, out):
    rows, cols = x.shape
    softmax_kernel[(rows,)](x, out, cols, num_warps=NUM_WARPS, num_stages=NUM_STAGES)
