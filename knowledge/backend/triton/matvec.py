"""Product of a matrix and a vector, a row or part of a row a program, in float32."""

import torch
import triton
import triton.language as tl

MATVEC_BLOCK = 4096  # kopt: knob MATVEC_BLOCK in [1024, 2048, 4096, 8192] values of a step
MATVEC_ROWS = 2  # kopt: knob MATVEC_ROWS in [1, 2, 4, 8] rows that share the vector's values
MATVEC_WARPS = 8  # kopt: knob MATVEC_WARPS in [4, 8, 16] warps of a program
MATVEC_STAGES = 2  # kopt: knob MATVEC_STAGES in [1, 2, 3, 4] loads in flight
MATVEC_PROGRAMS = 1024  # kopt: knob MATVEC_PROGRAMS in [512, 1024, 2048, 4096] where split
MATVEC_UNSPLIT = 400  # kopt: knob MATVEC_UNSPLIT in [250, 400, 1000] programs that need no split


@triton.jit
def matvec_kernel(
        # kopt: operands
        a, b, y, m, k, part, am, a_batch, b_batch, LAST: tl.constexpr, ROWS: tl.constexpr,
        DEPTH: tl.constexpr, STAGES: tl.constexpr):
    parts = tl.cdiv(k, part)
    blocks = tl.cdiv(m, ROWS)
    place = tl.program_id(0) // parts
    batch = (place // blocks).to(tl.int64)
    row = place % blocks * ROWS + tl.arange(0, ROWS)[:, None]
    begin = (tl.program_id(0) % parts).to(tl.int64) * part
    limit = tl.minimum(k - begin, part).to(tl.int32)
    a += batch * a_batch + row.to(tl.int64) * am + begin
    b += batch * b_batch + begin
    sums = tl.zeros([ROWS, DEPTH], tl.float32)
    for start in tl.range(0, limit, DEPTH, num_stages=STAGES):
        i = start + tl.arange(0, DEPTH)[None, :]
        one = tl.load(a + i, mask=(i < limit) & (row < m), other=0.0).to(tl.float32)
        other = tl.load(b + i, mask=i < limit, other=0.0).to(tl.float32)
        sums += one * other
    value = tl.sum(sums, 1, keep_dims=True)
    at = batch * m + row
    inside = row < m
    if LAST:
        # kopt: epilogue value
        tl.store(y + at, value, mask=inside)
    else:
        tl.store(y + at * parts + tl.program_id(0) % parts, value, mask=inside)


@triton.jit
def matvec_join(
        # kopt: operands
        partial, y, size, parts, PARTS: tl.constexpr, ROWS: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    part = tl.arange(0, PARTS)[None, :]
    inside = at < size
    value = tl.load(partial + at * parts + part, mask=inside & (part < parts), other=0.0)
    value = tl.sum(value, 1, keep_dims=True)
    # kopt: epilogue value
    tl.store(y + at, value, mask=inside)


def matvec(
        # kopt: operands
        a, b, dtype=None):
    """Matrices [..., m, k] by vectors: b is [k], or [..., k, 1] as in a product of matrices."""
    vector = b.dim() == 1
    b = b if vector else b.squeeze(-1)
    batch = a.shape[:-2] if vector else torch.broadcast_shapes(a.shape[:-2], b.shape[:-1])
    m, k = a.shape[-2:]
    y = torch.empty(*batch, m, *(() if vector else (1,)), dtype=dtype or a.dtype, device=a.device)
    if not y.numel():
        return y
    batches = y.numel() // m
    a = a.expand(*batch, m, k).reshape(batches, m, k)
    a = a if a.stride(2) == 1 else a.contiguous()
    b = b.expand(*batch, k).reshape(batches, k) if batches > 1 else b.reshape(1, k)
    b = b if b.stride(1) == 1 else b.contiguous()
    depth = min(max(MATVEC_BLOCK // MATVEC_ROWS, 16), 1 << (k - 1).bit_length())
    rows = -(-m // MATVEC_ROWS) * batches
    splits = max(1, min(MATVEC_PROGRAMS // rows, k // (4 * depth)))
    splits = 1 if rows >= MATVEC_UNSPLIT else splits
    part = -(-k // (splits * depth)) * depth
    parts = -(-k // part)
    partial = y if parts == 1 else torch.empty(y.numel() * parts, dtype=torch.float32,
                                               device=a.device)
    matvec_kernel[(rows * parts,)](
        # kopt: operands
        a, b, partial, m, k, part, a.stride(1), a.stride(0), b.stride(0), LAST=parts == 1,
        ROWS=MATVEC_ROWS, DEPTH=depth, STAGES=MATVEC_STAGES,
        num_warps=max(1, min(MATVEC_WARPS, MATVEC_ROWS * depth // 64)))
    if parts > 1:
        matvec_join[(-(-y.numel() // 8),)](
            # kopt: operands
            partial, y, y.numel(), parts, PARTS=1 << (parts - 1).bit_length(), ROWS=8)
    return y
