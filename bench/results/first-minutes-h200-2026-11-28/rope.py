import torch
import triton
import triton.language as tl


@triton.jit
def _rope(q, cos, sin, seq, heads, D: tl.constexpr, HALF: tl.constexpr):
    pid = tl.program_id(0)
    pos = (pid // heads) % seq
    cols = tl.arange(0, HALF)
    c = tl.load(cos + pos * HALF + cols).to(tl.float32)
    s = tl.load(sin + pos * HALF + cols).to(tl.float32)
    base = q + pid * D
    a = tl.load(base + cols).to(tl.float32)
    b = tl.load(base + HALF + cols).to(tl.float32)
    tl.store(base + cols, a * c - b * s)
    tl.store(base + HALF + cols, b * c + a * s)


def apply_rope_(q, cos, sin):
    """q: [batch, seq, heads, dim], changed in place."""
    batch, seq, heads, dim = q.shape
    _rope[(batch * seq * heads,)](q, cos, sin, seq, heads, D=dim, HALF=dim // 2)
    return q
