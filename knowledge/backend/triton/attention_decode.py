"""Attention of few queries over many keys, as when text is generated: split over the keys.

Keys lie in one tensor, or in pages that a table lists for each sequence. All query heads of a key
head are rows of one product, so that each key is read once. A second launch joins the parts.
"""

import torch
import triton
import triton.language as tl

ATTENTION_DECODE_BLOCK = 64  # kopt: knob ATTENTION_DECODE_BLOCK in [16, 32, 64, 128] keys of a step
ATTENTION_DECODE_WARPS = 4  # kopt: knob ATTENTION_DECODE_WARPS in [2, 4, 8] warps of a program
ATTENTION_DECODE_STAGES = 3  # kopt: knob ATTENTION_DECODE_STAGES in [1, 2, 3, 4] steps in flight
ATTENTION_DECODE_SPLIT = 0  # kopt: knob ATTENTION_DECODE_SPLIT in [0, 1, 4, 16, 64] 0: fill device


@triton.jit
def attention_decode_kernel(
        # kopt: operands
        q, k, v, y, weights, table, lengths, mask, key_heads, group, m, n, part, page, pages,
        qb, qh, qm, kb, kn, kh, vb, vn, vh, mask_b, mask_h, mask_m, mask_n, scale, low,
        WIDTH: tl.constexpr, PAGED: tl.constexpr, LENGTHS: tl.constexpr, MASK: tl.constexpr,
        LAST: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
        D: tl.constexpr, STAGES: tl.constexpr):
    """A part of the keys for the queries of one key head. MASK: 1 of flags, 2 of summands."""
    parts = tl.cdiv(n, part)
    place = tl.program_id(0) // parts
    batch = (place // key_heads).to(tl.int64)
    head = (place % key_heads).to(tl.int64)
    row = tl.arange(0, ROWS)
    d = tl.arange(0, D)
    known = row < group * m
    own = head * group + row // m
    query = tl.load(q + batch * qb + (own * qh + (row % m).to(tl.int64) * qm)[:, None] + d[None, :],
                    mask=known[:, None] & (d < WIDTH)[None, :], other=0.0)
    begin = tl.program_id(0) % parts * part
    end = tl.minimum(n, begin + part)
    if LENGTHS:
        end = tl.minimum(end, tl.load(lengths + batch).to(tl.int32))
    k += head * kh
    v += head * vh
    if not PAGED:
        k += batch * kb
        v += batch * vb
    value = tl.zeros([ROWS, D], tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    top = tl.full([ROWS], -3.4028234663852886e38, tl.float32)  # finite: -inf - -inf is NaN
    for start in tl.range(begin, end, BLOCK, num_stages=STAGES):
        column = start + tl.arange(0, BLOCK)
        there = column < end
        if PAGED:
            number = tl.load(table + batch * pages + column // page, mask=there, other=0)
            key_at = number.to(tl.int64) * kb + (column % page).to(tl.int64) * kn
            value_at = number.to(tl.int64) * vb + (column % page).to(tl.int64) * vn
        else:
            key_at = column.to(tl.int64) * kn
            value_at = column.to(tl.int64) * vn
        keys = tl.load(k + key_at[None, :] + d[:, None],
                       mask=there[None, :] & (d < WIDTH)[:, None], other=0.0)
        score = tl.dot(query, keys, input_precision=PRECISION) * scale
        if MASK:
            place_at = mask + batch * mask_b + (own * mask_h + (row % m).to(tl.int64) * mask_m)[
                :, None] + column.to(tl.int64)[None, :] * mask_n
            chosen = tl.load(place_at, mask=known[:, None] & there[None, :], other=0)
            if MASK == 1:
                score = tl.where(chosen != 0, score, low)
            else:  # only -inf excludes a key: the lowest float32 value must not become -inf
                chosen = chosen.to(tl.float32)
                score += tl.where(chosen == -float("inf"), chosen, tl.maximum(
                    chosen * 1.4426950408889634, -3.4e38))
        score = tl.where(there[None, :], score, -float("inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        power = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(power, 1)
        values = tl.load(v + value_at[:, None] + d[None, :],
                         mask=there[:, None] & (d < WIDTH)[None, :], other=0.0)
        value = tl.dot(power.to(v.dtype.element_ty), values, value * shrink[:, None],
                       input_precision=PRECISION)
        top = higher
    value = value / tl.where(total > 0, total, 1.0)[:, None]
    inside = known[:, None] & (d < WIDTH)[None, :]
    result = place.to(tl.int64) * group * m + row
    if LAST:
        at = result[:, None] * WIDTH + d[None, :]
        # kopt: epilogue value
        tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)
    else:
        result = result * parts + tl.program_id(0) % parts
        tl.store(y + result[:, None] * WIDTH + d[None, :], value, mask=inside)
        weight = tl.where(total > 0, top + tl.log2(tl.where(total > 0, total, 1.0)),
                          -3.4028234663852886e38)
        tl.store(weights + result, weight, mask=known)


@triton.jit
def attention_decode_join(
        # kopt: operands
        partial, weights, y, parts, WIDTH: tl.constexpr, PARTS: tl.constexpr, D: tl.constexpr):
    """Join the parts of one query and head; a part's weight is the logarithm of its sum."""
    result = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    d = tl.arange(0, D)[None, :]
    weight = tl.load(weights + result * parts + part, mask=part < parts, other=-float("inf"))
    share = tl.exp2(weight - tl.max(weight, 0))
    value = tl.load(partial + (result * parts + part[:, None]) * WIDTH + d,
                    mask=(part < parts)[:, None] & (d < WIDTH), other=0.0)
    value = tl.sum(value * share[:, None], 0, keep_dims=True) / tl.sum(share, 0)
    at = result * WIDTH + d
    inside = d < WIDTH
    # kopt: epilogue value
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


def attention_decode_device(x):
    """Return whether the backend is AMD's, the multiprocessors, the shared memory of a block."""
    try:
        card = torch.cuda.get_device_properties(x.device)
        return (triton.runtime.driver.active.get_current_target().backend == "hip",
                card.multi_processor_count, getattr(card, "shared_memory_per_block_optin", 65536))
    except (AssertionError, RuntimeError, ValueError):
        return False, 4, 65536  # interpreted


def attention_decode(
        # kopt: operands
        q, k, v, mask=None, scale=None, table=None, lengths=None, low=-float("inf")):
    """q [..., heads, m, d]; k and v [..., key heads, n, d], each for heads / key heads heads.

    With a table [sequences, pages] k and v are [all pages, tokens of a page, key heads, d], and q
    has 4 dimensions. lengths: how many keys each sequence has. mask: as PyTorch's attn_mask; low:
    the score of what its flags exclude.
    """
    lead, (m, width) = q.shape[:-2], q.shape[-2:]
    heads = lead[-1] if lead else 1
    q = q.reshape(-1, heads, m, width)
    if table is None:
        n, key_heads = k.shape[-2], k.shape[-3] if k.dim() > 2 else 1
        k, v = (t.reshape(-1, key_heads, n, width).transpose(1, 2) for t in (k, v))
        page = n
    else:
        page, key_heads = k.shape[1:3]
        n, table = table.shape[1] * page, table.contiguous()
    q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v))
    y = torch.empty(*lead, m, width, dtype=q.dtype, device=q.device)
    if not y.numel():
        return y
    group, places = heads // key_heads, q.shape[0] * key_heads
    rows = max(16, 1 << (group * m - 1).bit_length())
    size = max(16, 1 << (width - 1).bit_length())
    amd, units, shared = attention_decode_device(q)
    columns, stages = ATTENTION_DECODE_BLOCK, ATTENTION_DECODE_STAGES
    while columns > 16 and (rows + 2 * columns) * size * q.element_size() > shared // 2:
        columns //= 2
    while stages > 1 and (rows + 2 * columns * stages) * size * q.element_size() > shared // 2:
        stages -= 1  # two programs a multiprocessor
    parts = min(ATTENTION_DECODE_SPLIT or -(-(4 * units) // places), 128)
    part = -(-n // max(1, min(parts, n // (4 * columns))))
    part = -(-part // columns) * columns
    parts = -(-n // part)
    kind, steps = 0, (0, 0, 0, 0)
    if mask is not None:
        kind = 1 if mask.dtype == torch.bool else 2
        mask = mask.expand(*lead, m, n).reshape(-1, heads, m, n)
        mask, steps = mask.view(torch.uint8) if kind == 1 else mask, mask.stride()
    partial = y if parts == 1 else torch.empty(*y.shape[:-1], parts, width, dtype=torch.float32,
                                               device=y.device)
    weights = torch.empty(y.numel() // width * parts, dtype=torch.float32, device=y.device)
    single = q.dtype == torch.float32 and not amd
    attention_decode_kernel[(places * parts,)](
        # kopt: operands
        q, k, v, partial, weights, q if table is None else table,
        q if lengths is None else lengths, q if mask is None else mask, key_heads, group, m, n,
        part, page, n // page, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *steps,
        (width ** -0.5 if scale is None else scale) * 1.4426950408889634,
        low if low == -float("inf") else max(low * 1.4426950408889634, -3.4e38), WIDTH=width,
        PAGED=table is not None, LENGTHS=lengths is not None, MASK=kind, LAST=parts == 1,
        PRECISION="tf32x3" if single else "ieee", ROWS=rows, BLOCK=columns, D=size, STAGES=stages,
        num_warps=ATTENTION_DECODE_WARPS)
    if parts > 1:
        attention_decode_join[(y.numel() // width,)](
            # kopt: operands
            partial, weights, y, parts, WIDTH=width, PARTS=1 << (parts - 1).bit_length(), D=size,
            num_warps=4)
    return y
