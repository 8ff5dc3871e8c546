"""Paged attention, decode: the last mtp tokens of each sequence attend to the keys before them.

keys, values [page][kv_head][block_size][head_size]; block_tables [sequence][page]. A sequence starts
at `start`; earlier tokens have left its window. A program handles one sequence, the queries of one
head (or of all heads that share keys), and a part of the context. A second kernel combines the parts.
"""

import torch
import triton
import triton.language as tl

TILE = 16  # kopt: knob TILE in [16, 32, 64, 128] positions of a step
SPLITS = 1  # kopt: knob SPLITS in [1, 2, 4, 8, 16, 32] parts of a context
GROUPED = 0  # kopt: knob GROUPED in [0, 1] 1: heads that share keys are worked on together
NUM_WARPS = 4  # kopt: knob NUM_WARPS in [1, 2, 4, 8]
NUM_STAGES = 1  # kopt: knob NUM_STAGES in [1, 2, 3, 4] steps in flight

# A thread keeps its part of a step in its 255 registers.
# kopt: require TILE <= 32 * NUM_WARPS


@triton.jit
def decode_kernel(query, keys, values, block_tables, starts, out, partial, peaks, totals,
                  mtp, heads, kv_heads, head_size, block_size, blocks, context, scale,
                  GROUP: tl.constexpr, ROWS: tl.constexpr, HEAD: tl.constexpr, TILE: tl.constexpr,
                  SPLITS: tl.constexpr, NUM_STAGES: tl.constexpr):
    seq, group, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    kv_head = group * GROUP * kv_heads // heads
    rows = tl.arange(0, ROWS)  # all heads of the first token, then of the next
    columns = tl.arange(0, HEAD)
    token = rows // GROUP
    row = (seq * mtp + token) * heads + group * GROUP + rows % GROUP
    real = token < mtp
    whole = columns < head_size
    at = row.to(tl.int64)[:, None] * head_size + columns[None, :]
    mine = real[:, None] & whole[None, :]
    q = tl.load(query + at, mask=mine, other=0.0)

    start = tl.load(starts + seq)
    seen = context - mtp + 1 + token
    steps = tl.cdiv(tl.cdiv(context, TILE), SPLITS)
    first = part * steps * TILE
    peak = tl.full((ROWS,), -1e30, tl.float32)  # finite: a row may see nothing of a part
    total = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, HEAD), tl.float32)
    for step in tl.range(0, steps, num_stages=NUM_STAGES):
        position = first + step * TILE + tl.arange(0, TILE)
        inside = position < context
        page = tl.load(block_tables + seq * blocks + position // block_size, mask=inside, other=0)
        line = (page.to(tl.int64) * kv_heads + kv_head) * block_size + position % block_size
        place = line[:, None] * head_size + columns[None, :]
        given = inside[:, None] & whole[None, :]
        k = tl.load(keys + place, mask=given, other=0.0)
        visible = (position[None, :] >= start) & (position[None, :] < seen[:, None])
        scores = tl.where(visible, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        fade = tl.exp(peak - higher)
        total = total * fade + tl.sum(weights, 1)
        v = tl.load(values + place, mask=given, other=0.0)
        sums = sums * fade[:, None] + tl.dot(weights.to(v.dtype), v)
        peak = higher

    if SPLITS == 1:
        tl.store(out + at, sums / total[:, None], mask=mine)
    else:
        line = row.to(tl.int64) * SPLITS + part
        tl.store(peaks + line, peak, mask=real)
        tl.store(totals + line, total, mask=real)
        tl.store(partial + line[:, None] * head_size + columns[None, :], sums, mask=mine)


@triton.jit
def combine_kernel(partial, peaks, totals, out, head_size, HEAD: tl.constexpr,
                   SPLITS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    parts = row * SPLITS + tl.arange(0, SPLITS)
    columns = tl.arange(0, HEAD)
    whole = columns < head_size
    peak = tl.load(peaks + parts)
    weights = tl.exp(peak - tl.max(peak, 0))
    total = tl.sum(tl.load(totals + parts) * weights, 0)
    sums = tl.load(partial + parts[:, None] * head_size + columns[None, :], mask=whole[None, :],
                   other=0.0)
    tl.store(out + row * head_size + columns, tl.sum(sums * weights[:, None], 0) / total,
             mask=whole)


def paged_attention(query, keys, values, block_tables, starts, context, out):
    seqs, mtp, heads, head_size = query.shape
    kv_heads, block_size = keys.shape[1], keys.shape[2]
    group = heads // kv_heads if GROUPED else 1
    head = max(16, triton.next_power_of_2(head_size))
    lines = seqs * mtp * heads * SPLITS if SPLITS > 1 else 0
    partial = torch.empty((lines, head_size), dtype=torch.float32, device=query.device)
    peaks, totals = torch.empty((2, lines), dtype=torch.float32, device=query.device)
    decode_kernel[(seqs, heads // group, SPLITS)](
        query, keys, values, block_tables, starts, out, partial, peaks, totals,
        mtp, heads, kv_heads, head_size, block_size, block_tables.shape[1], context,
        head_size ** -0.5, GROUP=group, ROWS=max(16, triton.next_power_of_2(mtp * group)),
        HEAD=head, TILE=TILE, SPLITS=SPLITS, NUM_STAGES=NUM_STAGES, num_warps=NUM_WARPS)
    if SPLITS > 1:
        combine_kernel[(seqs * mtp * heads,)](partial, peaks, totals, out, head_size, HEAD=head,
                                              SPLITS=SPLITS, num_warps=1)
