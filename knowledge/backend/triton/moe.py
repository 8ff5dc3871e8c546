"""Mixture of experts after its routing: rows sorted by expert, grouped products, a weighted sum.

A launch sorts the (token, expert) pairs, one makes activated rows in the order of experts, one
their products, one adds up each token's rows in their order. Nothing is copied to the host.
"""

import torch
import triton
import triton.language as tl

MOE_BLOCK_M = 128  # kopt: knob MOE_BLOCK_M in [16, 32, 64, 128] most rows of an expert in a tile
MOE_BLOCK_N = 128  # kopt: knob MOE_BLOCK_N in [32, 64, 128, 256] columns of a tile
MOE_BLOCK_K = 64  # kopt: knob MOE_BLOCK_K in [32, 64, 128] depth of a step, of values of two bytes
MOE_GROUP = 8  # kopt: knob MOE_GROUP in [1, 4, 8, 16] rows of tiles that share weights in the cache
MOE_WARPS = 8  # kopt: knob MOE_WARPS in [4, 8] warps of a tile
MOE_STAGES = 3  # kopt: knob MOE_STAGES in [2, 3, 4] steps in flight; fewer if memory is short

# A thread keeps two sums for each of its places in its 255 registers.
# kopt: require MOE_BLOCK_M * MOE_BLOCK_N <= MOE_WARPS * 32 * 100


@triton.jit
def moe_sort(indices, order, begins, pairs, experts, BLOCK: tl.constexpr):
    """Write where an expert's rows begin, and its pairs in their order; one program an expert."""
    expert = tl.program_id(0)
    below = tl.zeros([BLOCK], tl.int32)
    for start in range(0, pairs, BLOCK):
        pair = start + tl.arange(0, BLOCK)
        below += tl.load(indices + pair, mask=pair < pairs, other=experts) < expert
    begin = tl.sum(below, 0)
    tl.store(begins + expert, begin)
    for start in range(0, pairs, BLOCK):
        pair = start + tl.arange(0, BLOCK)
        chosen = tl.load(indices + pair, mask=pair < pairs, other=-1)
        own = (chosen == expert).to(tl.int32)
        tl.store(order + begin + tl.cumsum(own, 0) - 1, pair, mask=own > 0)
        begin += tl.sum(own, 0)


@triton.jit
def moe_activated(value, ACTIVATION: tl.constexpr):
    if ACTIVATION == "silu":
        value = value / (1.0 + tl.exp(-value))
    if ACTIVATION == "gelu":
        value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
    if ACTIVATION == "relu":
        value = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return value


@triton.jit
def moe_product(
        x, up, gate, up_bias, gate_bias, order, begins, shares, y, rows_of_tiles, n, k, experts,
        chosen, xm, ue, uk, un, ge, gk, gn, FIRST: tl.constexpr, GATED: tl.constexpr,
        BIAS: tl.constexpr, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr,
        EXPERTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
        BLOCK_K: tl.constexpr, GROUP: tl.constexpr):
    """FIRST: tokens' rows times `up`, activated, in the order of experts; else times shares."""
    tiles_n = tl.cdiv(n, BLOCK_N)
    tile = tl.program_id(0)
    first = tile // (GROUP * tiles_n) * GROUP
    height = min(rows_of_tiles - first, GROUP)
    place = first + tile % (GROUP * tiles_n) % height
    column = tile % (GROUP * tiles_n) // height * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    each = tl.arange(0, EXPERTS)
    begin = tl.load(begins + each, mask=each < experts, other=0)
    tiles = tl.cdiv(tl.load(begins + each + 1, mask=each < experts, other=0) - begin, BLOCK_M)
    expert = tl.sum((tl.cumsum(tiles, 0) <= place).to(tl.int32), 0)
    if expert < experts:
        top = (place - tl.sum(tl.where(each < expert, tiles, 0), 0)) * BLOCK_M
        row = tl.load(begins + expert) + top + tl.arange(0, BLOCK_M)[:, None]
        there = row < tl.load(begins + expert + 1)
        pair = tl.load(order + row, mask=there, other=0)
        depth = tl.arange(0, BLOCK_K)
        across = column < n
        rows = x + (pair // chosen if FIRST else row).to(tl.int64) * xm + depth[None, :]
        ups = up + (expert.to(tl.int64) * ue + depth[:, None].to(tl.int64) * uk
                    + column.to(tl.int64) * un)
        gates = gate + (expert.to(tl.int64) * ge + depth[:, None].to(tl.int64) * gk
                        + column.to(tl.int64) * gn)
        value = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        gating = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for start in range(0, k, BLOCK_K):
            inside = (depth[:, None] < k - start) & across
            a = tl.load(rows, mask=there & (depth[None, :] < k - start), other=0.0)
            value = tl.dot(a, tl.load(ups, mask=inside, other=0.0), value,
                           input_precision=PRECISION)
            if GATED:
                gating = tl.dot(a, tl.load(gates, mask=inside, other=0.0), gating,
                                input_precision=PRECISION)
                gates += BLOCK_K * gk
            rows += BLOCK_K
            ups += BLOCK_K * uk
        if BIAS:
            value += tl.load(up_bias + expert * n + column, mask=across, other=0.0).to(tl.float32)
            if GATED:
                gating += tl.load(gate_bias + expert * n + column, mask=across,
                                  other=0.0).to(tl.float32)
        if GATED:
            value *= moe_activated(gating, ACTIVATION)
        elif FIRST:
            value = moe_activated(value, ACTIVATION)
        else:
            value *= tl.load(shares + pair, mask=there, other=0.0).to(tl.float32)
        at = (row if FIRST else pair).to(tl.int64) * n + column
        tl.store(y + at, value.to(y.dtype.element_ty), mask=there & across)


@triton.jit
def moe_join(partial, y, n, CHOSEN: tl.constexpr, BLOCK: tl.constexpr):
    """Add up the rows of a token."""
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.program_id(0).to(tl.int64)
    value = tl.zeros([BLOCK], tl.float32)
    for number in tl.static_range(CHOSEN):
        value += tl.load(partial + (token * CHOSEN + number) * n + column, mask=column < n,
                         other=0.0)
    tl.store(y + token * n + column, value.to(y.dtype.element_ty), mask=column < n)


def moe_device(x):
    """Return the backend and the shared memory of a block."""
    try:
        card = torch.cuda.get_device_properties(x.device)
        return (triton.runtime.driver.active.get_current_target().backend,
                getattr(card, "shared_memory_per_block_optin", 65536))
    except (AssertionError, RuntimeError, ValueError):
        return "", 65536  # interpreted


def moe(x, shares, indices, up, down, gate=None, activation="silu", up_bias=None, down_bias=None,
        gate_bias=None):
    """Return the sum of shares[t, j] * expert indices[t, j] of x[t], for x [tokens, d].

    up and gate are [experts, d, inner], down is [experts, inner, d]; an expert is
    (activation(x @ gate) * (x @ up)) @ down, or activation(x @ up) @ down, each product with a
    bias [experts, inner] or [experts, d].
    """
    x, shares, indices = x.contiguous(), shares.contiguous(), indices.contiguous()
    (tokens, d), (experts, _, inner), chosen = x.shape, up.shape, indices.shape[1]
    pairs, y = tokens * chosen, torch.empty_like(x)
    if not y.numel():
        return y
    order = torch.empty(pairs, dtype=torch.int32, device=x.device)
    begins = torch.empty(experts + 1, dtype=torch.int32, device=x.device)
    moe_sort[(experts + 1,)](indices, order, begins, pairs, experts, num_warps=8,
                             BLOCK=max(128, min(4096, 1 << (pairs - 1).bit_length())))
    backend, shared = moe_device(x)
    rows = max(16, min(MOE_BLOCK_M, 1 << (-(-pairs // experts) - 1).bit_length()))
    depth = MOE_BLOCK_K * 2 // x.element_size()
    rows_of_tiles = pairs // rows + min(experts, pairs)
    hidden = torch.empty(pairs, inner, dtype=x.dtype, device=x.device)
    partial = torch.empty(pairs, down.shape[2], dtype=torch.float32, device=x.device)

    def multiply(a, one, other, biases, result, first):
        n, k = one.shape[2], one.shape[1]
        columns = min(MOE_BLOCK_N, max(16, 1 << (n - 1).bit_length()))
        step = min(depth, max(16, 1 << (k - 1).bit_length()))
        size = (rows + columns * (2 if other is not None else 1)) * step * x.element_size()
        second = one if other is None else other
        moe_product[(rows_of_tiles * -(-n // columns),)](
            a, one, second, *(each if each is None else each.contiguous() for each in biases),
            order, begins, shares, result, rows_of_tiles, n, k, experts, chosen, a.stride(0),
            *one.stride(), *second.stride(), FIRST=first, GATED=other is not None,
            BIAS=biases[0] is not None, ACTIVATION=activation,
            PRECISION="tf32x3" if backend == "cuda" and x.dtype == torch.float32 else "ieee",
            EXPERTS=1 << (experts - 1).bit_length(), BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=step,
            GROUP=MOE_GROUP, num_warps=MOE_WARPS,
            num_stages=min(MOE_STAGES, max(1, shared // size)))

    multiply(x, up, gate, (up_bias, gate_bias), hidden, True)
    multiply(hidden, down, None, (down_bias, None), partial, False)
    moe_join[(tokens, -(-d // 1024))](partial, y, d, CHOSEN=chosen, BLOCK=1024)
    return y
