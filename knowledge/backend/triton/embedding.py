"""Rows of a table by index."""

import torch
import triton
import triton.language as tl

EMBEDDING_BLOCK = 2048  # kopt: knob EMBEDDING_BLOCK in [256, 512, 1024, 2048, 4096] values at once
EMBEDDING_WARPS = 4  # kopt: knob EMBEDDING_WARPS in [1, 2, 4, 8] warps of a program


@triton.jit
def embedding_kernel(
        index, table, y, count, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    blocks = tl.cdiv(width, WIDTH)
    row = (tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS))[:, None]
    column = (tl.program_id(0) % blocks * WIDTH + tl.arange(0, WIDTH))[None, :]
    inside = (row < count) & (column < width)
    place = tl.load(index + row, mask=row < count, other=0).to(tl.int64)
    value = tl.load(table + place * width + column, mask=inside, other=0.0)
    at = row.to(tl.int64) * width + column
    tl.store(y + at, value, mask=inside)


def embedding(index, table):
    index, table = index.contiguous(), table.contiguous()
    width = table.shape[1]
    y = torch.empty(*index.shape, width, dtype=table.dtype, device=table.device)
    if y.numel():
        block = min(EMBEDDING_BLOCK, 1 << (width - 1).bit_length())
        rows = max(1, EMBEDDING_BLOCK // block)
        embedding_kernel[(-(-index.numel() // rows) * -(-width // block),)](
                index, table, y, index.numel(), width, ROWS=rows, WIDTH=block,
            num_warps=EMBEDDING_WARPS)
    return y
