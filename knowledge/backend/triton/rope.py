"""Rotary position embedding: halves or pairs of each head are turned by tables of angles."""

import torch
import triton
import triton.language as tl

ROPE_HEADS = 8  # kopt: knob ROPE_HEADS in [1, 2, 4, 8, 16] heads of a position in a program
ROPE_WARPS = 4  # kopt: knob ROPE_WARPS in [1, 2, 4, 8] warps of a program


@triton.jit
def rope_kernel(x, y, cosine, sine, heads, positions, xb, xh, xp, yb, yh, yp, HALF: tl.constexpr,
                WIDTH: tl.constexpr, PAIRS: tl.constexpr, TABLE: tl.constexpr,
                HEADS: tl.constexpr):
    blocks = tl.cdiv(heads, HEADS)
    head = (tl.program_id(0) % blocks * HEADS + tl.arange(0, HEADS))[:, None]
    position = tl.program_id(0) // blocks % positions
    batch = (tl.program_id(0) // blocks // positions).to(tl.int64)
    i = tl.arange(0, WIDTH)[None, :]
    inside = (head < heads) & (i < HALF)
    low = 2 * i if PAIRS else i
    high = 2 * i + 1 if PAIRS else i + HALF
    c = tl.load(cosine + position * TABLE + i, mask=i < HALF, other=0.0).to(tl.float32)
    s = tl.load(sine + position * TABLE + i, mask=i < HALF, other=0.0).to(tl.float32)
    x += batch * xb + head.to(tl.int64) * xh + position.to(tl.int64) * xp
    y += batch * yb + head.to(tl.int64) * yh + position.to(tl.int64) * yp
    a = tl.load(x + low, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + high, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + low, a * c - b * s, mask=inside)
    tl.store(y + high, b * c + a * s, mask=inside)


def rope(x, cosine, sine, pairs=False, head_dim=1):
    """x [batch, heads, positions, d], or head_dim=2: [batch, positions, heads, d].

    cosine and sine are [positions, d / 2], or [positions, d] of which the first half counts.
    """
    x = x if x.stride(-1) == 1 else x.contiguous()
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    cosine, sine = cosine.contiguous(), sine.contiguous()
    position_dim = 3 - head_dim
    heads, positions, half = x.shape[head_dim], x.shape[position_dim], x.shape[-1] // 2
    programs = x.shape[0] * positions * -(-heads // ROPE_HEADS)
    if programs:
        rope_kernel[(programs,)](
            x, y, cosine, sine, heads, positions, x.stride(0), x.stride(head_dim),
            x.stride(position_dim), y.stride(0), y.stride(head_dim), y.stride(position_dim),
            HALF=half, WIDTH=1 << (half - 1).bit_length(), PAIRS=pairs, TABLE=cosine.shape[-1],
            HEADS=ROPE_HEADS, num_warps=ROPE_WARPS)
    return y
