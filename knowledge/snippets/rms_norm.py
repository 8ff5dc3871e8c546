import triton
import triton.language as tl


@triton.jit
def rms_norm(x, weight, y, columns, eps, BLOCK: tl.constexpr):
    """One program a row, which stays in registers: one read and one write of each value."""
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)  # BLOCK: the power of 2 from `columns` on
    inside = at < columns
    value = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / columns + eps)
    factor = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row + at, value * scale * factor, mask=inside)


# --- checks ---
KERNEL = rms_norm
SIGNATURE = {"x": "*bf16", "weight": "*bf16", "y": "*bf16", "columns": "i32", "eps": "fp32",
             "BLOCK": "constexpr"}
CONSTANTS = {"BLOCK": 4096}


def errors(torch):
    x, weight = torch.randn(3, 100), torch.randn(100)
    y = torch.empty_like(x)
    rms_norm[(3,)](x, weight, y, 100, 1e-5, BLOCK=128)
    exact = x.double() * torch.rsqrt((x.double() ** 2).mean(1, keepdim=True) + 1e-5) * weight
    yield (y - exact).abs().max(), 1e-5
