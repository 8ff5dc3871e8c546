import torch
import triton
import triton.language as tl


@triton.jit
def _causal_conv1d_fwd(x_ptr, w_ptr, b_ptr, y_ptr, dim, seqlen, stride_xb, stride_xd, stride_xl,
                       WIDTH: tl.constexpr, SILU: tl.constexpr, BLOCK_L: tl.constexpr):
    pid_b = tl.program_id(0)
    pid_d = tl.program_id(1)
    pid_l = tl.program_id(2)
    offs = pid_l * BLOCK_L + tl.arange(0, BLOCK_L)
    base = x_ptr + pid_b * stride_xb + pid_d * stride_xd
    acc = tl.zeros((BLOCK_L,), dtype=tl.float32)
    bias = tl.load(b_ptr + pid_d).to(tl.float32)
    acc += bias
    for i in range(WIDTH):
        w = tl.load(w_ptr + pid_d * WIDTH + i).to(tl.float32)
        pos = offs - (WIDTH - 1) + i
        xv = tl.load(base + pos * stride_xl, mask=(pos >= 0) & (pos < seqlen), other=0.0).to(tl.float32)
        acc += w * xv
    if SILU:
        acc = acc * tl.sigmoid(acc)
    tl.store(y_ptr + pid_b * stride_xb + pid_d * stride_xd + offs * stride_xl, acc, mask=offs < seqlen)


def causal_conv1d(x, weight, bias, activation="silu"):
    batch, dim, seqlen = x.shape
    y = torch.empty_like(x)
    BLOCK_L = 128
    grid = (batch, dim, triton.cdiv(seqlen, BLOCK_L))
    _causal_conv1d_fwd[grid](x, weight, bias, y, dim, seqlen, x.stride(0), x.stride(1), x.stride(2),
                             WIDTH=weight.shape[1], SILU=activation == "silu", BLOCK_L=BLOCK_L, num_warps=4)
    return y
