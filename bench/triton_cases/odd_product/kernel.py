import torch
import triton
import triton.language as tl


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr,
                   BK: tl.constexpr):
    pid = tl.program_id(0)
    offs_m = (pid // tl.cdiv(N, BN) * BM + tl.arange(0, BM)) % M
    offs_n = (pid % tl.cdiv(N, BN) * BN + tl.arange(0, BN)) % N
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + offs_m[:, None] * K + offs_k[None, :]
    b_ptrs = b_ptr + offs_k[:, None] * N + offs_n[None, :]
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        # the last block may be partial
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        sums = tl.dot(a, b, sums)
        a_ptrs += BK
        b_ptrs += BK * N
    rows, cols = pid // tl.cdiv(N, BN) * BM, pid % tl.cdiv(N, BN) * BN
    out_m, out_n = rows + tl.arange(0, BM), cols + tl.arange(0, BN)
    tl.store(c_ptr + out_m[:, None] * N + out_n[None, :], sums,
             mask=(out_m[:, None] < M) & (out_n[None, :] < N))


def product(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, 128) * triton.cdiv(N, 128),)
    product_kernel[grid](a, b, c, M, N, K, BM=128, BN=128, BK=64, num_warps=8)
    return c
