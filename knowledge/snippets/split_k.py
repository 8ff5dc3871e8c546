import triton
import triton.language as tl


@triton.jit
def split_k_matmul(a, b, c, M, N, K, per_split, BM: tl.constexpr, BN: tl.constexpr,
                   BK: tl.constexpr):
    """c (float32, zeroed by the caller) += a @ b; axis 1 of the grid is the split of K."""
    columns = tl.cdiv(N, BN)
    m = tl.program_id(0) // columns * BM + tl.arange(0, BM)
    n = tl.program_id(0) % columns * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], tl.float32)
    first = tl.program_id(1) * per_split
    for start in range(first, min(first + per_split, K), BK):  # per_split is a multiple of BK
        k = start + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :],
                       mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :],
                        mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.atomic_add(c + m[:, None] * N + n[None, :], total,
                  mask=(m[:, None] < M) & (n[None, :] < N), sem="relaxed")


# --- checks ---
KERNEL = split_k_matmul
SIGNATURE = {"a": "*bf16", "b": "*bf16", "c": "*fp32", "M": "i32", "N": "i32", "K": "i32",
             "per_split": "i32", "BM": "constexpr", "BN": "constexpr", "BK": "constexpr"}
CONSTANTS = {"BM": 64, "BN": 64, "BK": 32}


def errors(torch):
    a, b = torch.randn(33, 100), torch.randn(100, 40)
    c = torch.zeros(33, 40)
    split_k_matmul[(3 * 2, 3)](a, b, c, 33, 40, 100, 48, BM=16, BN=32, BK=16)
    yield (c - a.double() @ b.double()).abs().max(), 1e-4
