import torch
import triton
import triton.language as tl


@triton.jit
def norm_kernel(X, Y, W, B, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    X += row * cols
    Y += row * cols
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, cols, BLOCK):
        at = off + tl.arange(0, BLOCK)
        sums += tl.load(X + at, mask=at < cols, other=0.0).to(tl.float32)
    mean = tl.sum(sums, axis=0) / cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, cols, BLOCK):
        at = off + tl.arange(0, BLOCK)
        x = tl.load(X + at, mask=at < cols, other=0.0).to(tl.float32)
        x = tl.where(at < cols, x - mean, 0.0)
        squares += x * x
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / cols + eps)
    for off in range(0, cols, BLOCK):
        at = off + tl.arange(0, BLOCK)
        x = tl.load(X + at, mask=at < cols, other=0.0).to(tl.float32)
        w = tl.load(W + at, mask=at < cols)
        b = tl.load(B + at, mask=at < cols)
        tl.store(Y + at, (x - mean) * scale * w + b, mask=at < cols)


def layer_norm(x, weight, bias):
    out = torch.empty_like(x)
    rows, cols = x.shape
    norm_kernel[(rows,)](x, out, weight, bias, cols, 1e-5, BLOCK=1024, num_warps=4)
    return out
