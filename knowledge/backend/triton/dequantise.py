"""Narrow values times a scale: of the tensor, of each row or column; a group is a view's row."""

import torch
import triton
import triton.language as tl

DEQUANTISE_BLOCK = 4096  # kopt: knob DEQUANTISE_BLOCK in [1024, 2048, 4096, 8192] values a program
DEQUANTISE_COLUMNS = 1024  # kopt: knob DEQUANTISE_COLUMNS in [256, 512, 1024, 2048] of each row
DEQUANTISE_WARPS = 8  # kopt: knob DEQUANTISE_WARPS in [4, 8, 16] warps of a program


@triton.jit
def dequantise_kernel(
        # kopt: operands
        q, scale, y, size, n, BY_ROW: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    at = first + tl.arange(0, BLOCK)
    place = (first % n).to(tl.int32) + tl.arange(0, BLOCK)  # divisions of 32 bits
    inside = at < size
    value = tl.load(q + at, mask=inside, other=0.0).to(tl.float32)
    if BY_ROW:
        value *= tl.load(scale + first // n + place // n, mask=inside, other=0.0).to(tl.float32)
    else:
        value *= tl.load(scale).to(tl.float32)
    value = value.to(y.dtype.element_ty).to(tl.float32)
    # kopt: epilogue value
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def dequantise_columns(
        # kopt: operands
        q, scale, y, rows, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """ROWS rows of COLUMNS columns, whose scales are read once."""
    across = tl.cdiv(n, COLUMNS)
    column = tl.program_id(0) % across * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    row = tl.program_id(0) // across * ROWS + tl.arange(0, ROWS)[:, None]
    at = row.to(tl.int64) * n + column
    inside = (row < rows) & (column < n)
    value = tl.load(q + at, mask=inside, other=0.0).to(tl.float32)
    value *= tl.load(scale + column, mask=column < n, other=0.0).to(tl.float32)
    value = value.to(y.dtype.element_ty).to(tl.float32)
    # kopt: epilogue value
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


def dequantise(
        # kopt: operands
        q, scale, dtype):
    """q.to(dtype) * scale, with one scale, one of each row [..., 1] or one of each column."""
    q, scale, n = q.contiguous(), scale.contiguous(), q.shape[-1] if q.dim() else 1
    y = torch.empty(q.shape, dtype=dtype, device=q.device)
    if scale.numel() > 1 and scale.shape[-1] > 1 and y.numel():
        rows, columns = y.numel() // n, min(DEQUANTISE_COLUMNS, 1 << (n - 1).bit_length())
        height = max(1, DEQUANTISE_BLOCK // columns)
        dequantise_columns[(-(-rows // height) * -(-n // columns),)](
            # kopt: operands
            q, scale, y, rows, n, ROWS=height, COLUMNS=columns, num_warps=DEQUANTISE_WARPS)
    elif y.numel():
        dequantise_kernel[(-(-y.numel() // DEQUANTISE_BLOCK),)](
            # kopt: operands
            q, scale, y, y.numel(), n, BY_ROW=scale.numel() > 1, BLOCK=DEQUANTISE_BLOCK,
            num_warps=DEQUANTISE_WARPS)
    return y
