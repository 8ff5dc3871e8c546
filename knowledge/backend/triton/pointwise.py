"""Any elementwise expression of one tensor, and of operands that broadcast to it, in one pass.

The expression is written at the epilogue; without one the result is a copy.
"""

import torch
import triton
import triton.language as tl

POINTWISE_BLOCK = 1024  # kopt: knob POINTWISE_BLOCK in [1024, 2048, 4096, 8192] elements a program
POINTWISE_WARPS = 8  # kopt: knob POINTWISE_WARPS in [4, 8, 16] warps a program


@triton.jit
def pointwise_kernel(
        # kopt: operands
        x, y, size, EVEN: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    if WIDE:
        block = block.to(tl.int64)
    at = block * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    if EVEN:
        inside = tl.full([BLOCK], True, tl.int1)
    value = tl.load(x + at, mask=inside).to(tl.float32)
    # kopt: epilogue value
    tl.store(y + at, value, mask=inside)


def pointwise(
        # kopt: operands
        x, dtype=None):
    x = x.contiguous()
    y = torch.empty_like(x, dtype=dtype)
    size = x.numel()
    if size:
        pointwise_kernel[(-(-size // POINTWISE_BLOCK),)](
            # kopt: operands
            x, y, size, EVEN=size % POINTWISE_BLOCK == 0, WIDE=size >= 2**31 - POINTWISE_BLOCK,
            BLOCK=POINTWISE_BLOCK, num_warps=POINTWISE_WARPS)
    return y
