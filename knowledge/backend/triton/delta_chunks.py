"""A gated delta rule over many tokens, chunk by chunk: products instead of a step for each token.

What does not need the state, the inverse of a triangle a chunk, is computed for all chunks at once.
Then a program takes some columns of a head's state through all chunks.
"""

import torch
import triton
import triton.language as tl

DELTA_CHUNKS_TOKENS = 32  # kopt: knob DELTA_CHUNKS_TOKENS in [16, 32, 64] tokens of a chunk
DELTA_CHUNKS_COLUMNS = 32  # kopt: knob DELTA_CHUNKS_COLUMNS in [16, 32, 64] of the state, a program
DELTA_CHUNKS_WARPS = 2  # kopt: knob DELTA_CHUNKS_WARPS in [2, 4, 8] warps of a program
DELTA_CHUNKS_STAGES = 2  # kopt: knob DELTA_CHUNKS_STAGES in [1, 2, 3] chunks in flight


@triton.jit
def delta_chunks_triangle(k, decay, beta, inverses, heads, tokens, depth, kb, kh, kt,
                          PRECISION: tl.constexpr, TOKENS: tl.constexpr, D: tl.constexpr):
    """Invert 1 + A, where A holds what earlier tokens of a chunk add to a token's change."""
    chunks = tl.cdiv(tokens, TOKENS)
    place = (tl.program_id(0) // chunks).to(tl.int64)
    i = tl.arange(0, TOKENS)
    d = tl.arange(0, D)[None, :]
    t = tl.program_id(0) % chunks * TOKENS + i
    known = t < tokens
    k += place // heads * kb + place % heads * kh
    key = tl.load(k + t[:, None].to(tl.int64) * kt + d, mask=known[:, None] & (d < depth),
                  other=0.0)
    gate = tl.cumsum(tl.load(decay + place * tokens + t, mask=known, other=0.0).to(tl.float32), 0)
    rate = tl.load(beta + place * tokens + t, mask=known, other=0.0).to(tl.float32)
    below = i[:, None] > i[None, :]
    share = tl.exp(tl.where(below, gate[:, None] - gate[None, :], -float("inf")))
    added = tl.dot(key, tl.trans(key), input_precision=PRECISION) * share * rate[:, None]
    same = i[:, None] == i[None, :]
    inverse = tl.where(same, 1.0, 0.0)
    for row in range(1, TOKENS):  # of the inverse, from those above it
        own = tl.sum(tl.where(i[:, None] == row, added, 0.0), 0)
        change = tl.sum(own[:, None] * inverse, 0)
        inverse = tl.where(i[:, None] == row, inverse - change[None, :], inverse)
    at = tl.program_id(0).to(tl.int64) * TOKENS * TOKENS
    tl.store(inverses + at + i[:, None] * TOKENS + i[None, :], inverse)


@triton.jit
def delta_chunks_chain(q, k, v, decay, beta, inverses, state, y, after, heads, tokens, depth, width,
                       qb, qh, qt, kb, kh, kt, vb, vh, vt, scale, GIVEN: tl.constexpr,
                       PRECISION: tl.constexpr, TOKENS: tl.constexpr, D: tl.constexpr,
                       COLUMNS: tl.constexpr, STAGES: tl.constexpr):
    """COLUMNS columns of a head's state [depth, width], chunk after chunk."""
    blocks = tl.cdiv(width, COLUMNS)
    place = (tl.program_id(0) // blocks).to(tl.int64)
    batch, head = place // heads, place % heads
    i = tl.arange(0, TOKENS)
    d = tl.arange(0, D)
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    there = (column < width)[None, :]
    chunks = tl.cdiv(tokens, TOKENS)
    memory_at = place * depth * width + d[:, None] * width + column[None, :]
    inside = (d < depth)[:, None] & there
    memory = tl.zeros([D, COLUMNS], tl.float32)
    if GIVEN:
        memory += tl.load(state + memory_at, mask=inside, other=0.0).to(tl.float32)
    q += batch * qb + head * qh
    k += batch * kb + head * kh
    v += batch * vb + head * vh
    upto = i[:, None] >= i[None, :]
    dtype: tl.constexpr = k.dtype.element_ty
    for chunk in tl.range(0, chunks, num_stages=STAGES):
        t = chunk * TOKENS + i
        known = t < tokens
        both = known[:, None] & (d < depth)[None, :]
        query = tl.load(q + t[:, None].to(tl.int64) * qt + d[None, :], mask=both, other=0.0)
        key = tl.load(k + t[:, None].to(tl.int64) * kt + d[None, :], mask=both, other=0.0)
        value = tl.load(v + t[:, None].to(tl.int64) * vt + column[None, :],
                        mask=known[:, None] & there, other=0.0).to(tl.float32)
        own = tl.load(decay + place * tokens + t, mask=known, other=0.0).to(tl.float32)
        rate = tl.load(beta + place * tokens + t, mask=known, other=0.0).to(tl.float32)
        inverse = tl.load(inverses + (place * chunks + chunk) * TOKENS * TOKENS
                          + i[:, None] * TOKENS + i[None, :])
        gate = tl.cumsum(own, 0)
        whole = tl.sum(own, 0)
        held = memory.to(dtype)
        known_value = tl.dot(key, held, input_precision=PRECISION) * tl.exp(gate)[:, None]
        rest = (value - known_value) * rate[:, None]
        change = tl.dot(inverse.to(dtype), rest.to(dtype), input_precision=PRECISION).to(dtype)
        share = tl.exp(tl.where(upto, gate[:, None] - gate[None, :], -float("inf")))
        score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * share
        result = tl.dot(query, held, input_precision=PRECISION) * tl.exp(gate)[:, None]
        result = tl.dot(score.to(dtype), change, result, input_precision=PRECISION) * scale
        tl.store(y + (place * tokens + t)[:, None] * width + column[None, :],
                 result.to(y.dtype.element_ty), mask=known[:, None] & there)
        late = (key.to(tl.float32) * tl.exp(whole - gate)[:, None]).to(dtype)
        memory = tl.dot(tl.trans(late), change, memory * tl.exp(whole), input_precision=PRECISION)
    tl.store(after + memory_at, memory.to(after.dtype.element_ty), mask=inside)


def delta_chunks_is_amd(x):
    try:
        torch.cuda.get_device_properties(x.device)
        return triton.runtime.driver.active.get_current_target().backend == "hip"
    except (AssertionError, RuntimeError, ValueError):
        return False  # interpreted


def delta_chunks(q, k, v, decay, beta, state=None, scale=1.0):
    """q, k [..., heads, t, d], v [..., heads, t, e], decay and beta [..., heads, t].

    For each token h = h exp(decay); h += k (beta (v - kᵀh))ᵀ; y = scale qᵀh. Returns y and h, whose
    first value [..., heads, d, e] is state, or 0. Keys of length 1 keep it bounded.
    """
    lead, (tokens, depth), width = q.shape[:-2], q.shape[-2:], v.shape[-1]
    heads = lead[-1] if lead else 1
    y = torch.empty(*lead, tokens, width, dtype=v.dtype, device=v.device)
    after = torch.empty(*lead, depth, width, device=v.device,
                        dtype=q.dtype if state is None else state.dtype)
    q, k, v = (t.reshape(-1, heads, *t.shape[-2:]) for t in (q, k, v))
    q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v))
    decay, beta = decay.contiguous(), beta.contiguous()
    places, chunks = q.shape[0] * heads, -(-tokens // DELTA_CHUNKS_TOKENS)
    inverses = torch.empty(places * chunks * DELTA_CHUNKS_TOKENS ** 2, dtype=torch.float32,
                           device=v.device)
    columns = min(DELTA_CHUNKS_COLUMNS, max(16, 1 << (width - 1).bit_length()))
    amd = delta_chunks_is_amd(q)
    single = q.dtype == torch.float32 and not amd
    sizes = dict(PRECISION="tf32x3" if single else "ieee", TOKENS=DELTA_CHUNKS_TOKENS,
                 D=max(16, 1 << (depth - 1).bit_length()), num_warps=DELTA_CHUNKS_WARPS)
    delta_chunks_triangle[(places * chunks,)](
        k, decay, beta, inverses, heads, tokens, depth, *k.stride()[:3], **sizes)
    delta_chunks_chain[(places * -(-width // columns),)](
        q, k, v, decay, beta, inverses, y if state is None else state.contiguous(), y, after, heads,
        tokens, depth, width, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], scale,
        GIVEN=state is not None, COLUMNS=columns,
        STAGES=1 if amd else DELTA_CHUNKS_STAGES, **sizes)
    return y, after
