"""Attention forward: online softmax, causal or masked, with query heads that share key heads."""

import torch
import triton
import triton.language as tl

ATTENTION_BLOCK_M = 128  # kopt: knob ATTENTION_BLOCK_M in [64, 128] queries of a program
ATTENTION_BLOCK_N = 64  # kopt: knob ATTENTION_BLOCK_N in [32, 64, 128] keys of a step
ATTENTION_WARPS = 8  # kopt: knob ATTENTION_WARPS in [4, 8] warps of a program
ATTENTION_STAGES = 3  # kopt: knob ATTENTION_STAGES in [1, 2, 3, 4] steps in flight


@triton.jit
def attention_steps(value, total, top, query, k, v, mask, first, end, row, m, n, kn, vn, mask_m,
                    mask_n, scale, low, WIDTH, DIAGONAL: tl.constexpr, EDGE: tl.constexpr,
                    EVEN: tl.constexpr, MASK: tl.constexpr, PRECISION: tl.constexpr,
                    BLOCK_N: tl.constexpr, D: tl.constexpr):
    """Keys `first` to `end`, some of which DIAGONAL, EDGE or MASK exclude."""
    d = tl.arange(0, D)
    for start in range(first, end, BLOCK_N):
        column = start + tl.arange(0, BLOCK_N)
        if EDGE:
            keys = tl.load(k + column[None, :] * kn + d[:, None],
                           mask=(column < n)[None, :] & (d < WIDTH)[:, None], other=0.0)
        elif EVEN:
            keys = tl.load(k + column[None, :] * kn + d[:, None])
        else:
            keys = tl.load(k + column[None, :] * kn + d[:, None], mask=(d < WIDTH)[:, None],
                           other=0.0)
        score = tl.dot(query, keys, input_precision=PRECISION) * scale
        if MASK:
            known = (row < m)[:, None] & (column < n)[None, :]
            chosen = tl.load(mask + row.to(tl.int64)[:, None] * mask_m + column[None, :] * mask_n,
                             mask=known, other=0)
            if MASK == 1:
                score = tl.where(chosen != 0, score, low)
            else:  # only -inf excludes a key: the lowest float32 value must not become -inf
                chosen = chosen.to(tl.float32)
                score += tl.where(chosen == -float("inf"), chosen, tl.maximum(
                    chosen * 1.4426950408889634, -3.4e38))
        if DIAGONAL:
            score = tl.where(column[None, :] <= row[:, None], score, -float("inf"))
        if EDGE:
            score = tl.where((column < n)[None, :], score, -float("inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        power = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(power, 1)
        value = value * shrink[:, None]
        if EDGE:
            values = tl.load(v + column[:, None] * vn + d[None, :],
                             mask=(column < n)[:, None] & (d < WIDTH)[None, :], other=0.0)
        elif EVEN:
            values = tl.load(v + column[:, None] * vn + d[None, :])
        else:
            values = tl.load(v + column[:, None] * vn + d[None, :], mask=(d < WIDTH)[None, :],
                             other=0.0)
        value = tl.dot(power.to(v.dtype.element_ty), values, value, input_precision=PRECISION)
        top = higher
    return value, total, top


@triton.jit
def attention_kernel(
        # kopt: operands
        q, k, v, y, mask, heads, group, m, n, qb, qh, qm, kb, kh, kn, vb, vh, vn, mask_b, mask_h,
        mask_m, mask_n, scale, low, WIDTH: tl.constexpr, CAUSAL: tl.constexpr,
        MASK: tl.constexpr, PRECISION: tl.constexpr, BLOCK_M: tl.constexpr,
        BLOCK_N: tl.constexpr, D: tl.constexpr):
    """BLOCK_M queries of one head; the longest rows of a causal mask start first.

    MASK: 1 of flags, 2 of summands.
    """
    blocks = tl.cdiv(m, BLOCK_M)
    block = blocks - 1 - tl.program_id(0) % blocks
    place = tl.program_id(0) // blocks
    batch = (place // heads).to(tl.int64)
    head = place % heads
    row = block * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    EVEN: tl.constexpr = WIDTH == D
    q += batch * qb + head.to(tl.int64) * qh
    k += batch * kb + (head // group).to(tl.int64) * kh
    v += batch * vb + (head // group).to(tl.int64) * vh
    mask += batch * mask_b + head.to(tl.int64) * mask_h
    query = tl.load(q + row[:, None] * qm + d[None, :],
                    mask=(row < m)[:, None] & (d < WIDTH)[None, :], other=0.0)
    value = tl.zeros([BLOCK_M, D], tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    top = tl.full([BLOCK_M], -3.4028234663852886e38, tl.float32)  # finite: -inf - -inf is NaN
    whole = n // BLOCK_N * BLOCK_N
    if CAUSAL:  # keys that all rows see, then those that the diagonal crosses
        whole = min(whole, block * BLOCK_M // BLOCK_N * BLOCK_N)
    value, total, top = attention_steps(
        value, total, top, query, k, v, mask, 0, whole, row, m, n, kn, vn, mask_m, mask_n, scale,
        low, WIDTH, False, False, EVEN, MASK, PRECISION, BLOCK_N, D)
    end = min(n, (block + 1) * BLOCK_M) if CAUSAL else n
    if whole < end:
        value, total, top = attention_steps(
            value, total, top, query, k, v, mask, whole, end, row, m, n, kn, vn, mask_m, mask_n,
            scale, low, WIDTH, CAUSAL, True, EVEN, MASK, PRECISION, BLOCK_N, D)
    value = value / tl.where(total > 0, total, 1.0)[:, None]
    at = place.to(tl.int64) * m * WIDTH + row[:, None] * WIDTH + d[None, :]
    inside = (row < m)[:, None] & (d < WIDTH)[None, :]
    # kopt: epilogue value
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


def attention_limits(x):
    """Return whether the backend is AMD's, and the shared memory of a block."""
    try:
        card = torch.cuda.get_device_properties(x.device)
        return (triton.runtime.driver.active.get_current_target().backend == "hip",
                getattr(card, "shared_memory_per_block_optin", 65536))
    except (AssertionError, RuntimeError, ValueError):
        return False, 65536  # interpreted


def attention(
        # kopt: operands
        q, k, v, is_causal=False, scale=None, mask=None, low=-float("inf")):
    """q [..., heads, m, d]; k and v [..., key heads, n, d], each for heads / key heads heads.

    mask: as PyTorch's attn_mask, flags of what counts or summands; low: the score of what does not
    count. Rows without a key are 0.
    """
    lead, (m, width), n = q.shape[:-2], q.shape[-2:], k.shape[-2]
    heads, key_heads = (lead[-1], k.shape[-3]) if lead else (1, 1)
    q, k, v = (t.reshape(-1, count, *t.shape[-2:]) for t, count in
               ((q, heads), (k, key_heads), (v, key_heads)))
    q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v))
    y = torch.empty(*lead, m, width, dtype=q.dtype, device=q.device)
    size = max(16, 1 << (width - 1).bit_length())
    amd, shared = attention_limits(q)
    rows = min(ATTENTION_BLOCK_M, max(16, 1 << (m - 1).bit_length()))
    columns = ATTENTION_BLOCK_N
    if size * q.element_size() > 256 or amd:  # long heads: fewer keys at a time
        rows, columns = min(rows, 64), min(columns, 32)
    stages = ATTENTION_STAGES
    while stages > 1 and (rows + 2 * columns * stages) * size * q.element_size() > shared:
        stages -= 1
    kind, steps = 0, (0, 0, 0, 0)
    if mask is not None:
        kind = 1 if mask.dtype == torch.bool else 2
        mask = mask.expand(*lead, m, n).reshape(-1, heads, m, n)
        mask, steps = mask.view(torch.uint8) if kind == 1 else mask, mask.stride()
    single = q.dtype == torch.float32 and not amd
    programs = q.shape[0] * heads * -(-m // rows)
    attention_kernel[(programs,)](
        # kopt: operands
        q, k, v, y, q if mask is None else mask, heads, heads // key_heads, m, n, *q.stride()[:3],
        *k.stride()[:3], *v.stride()[:3], *steps,
        (width ** -0.5 if scale is None else scale) * 1.4426950408889634,
        low if low == -float("inf") else max(low * 1.4426950408889634, -3.4e38), WIDTH=width,
        CAUSAL=is_causal, MASK=kind, PRECISION="tf32x3" if single else "ieee", BLOCK_M=rows,
        BLOCK_N=columns, D=size, num_warps=ATTENTION_WARPS if rows * size > 4096 else 4,
        num_stages=stages)
    return y
