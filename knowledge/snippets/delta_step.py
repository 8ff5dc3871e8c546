import triton
import triton.language as tl


@triton.jit
def delta_step(q, k, v, decay, beta, state, out, scale, D: tl.constexpr, V: tl.constexpr,
               BV: tl.constexpr):
    """A gated delta rule's step of one head for BV columns of its state (D x V, float32)."""
    head = tl.program_id(0)
    row, column = tl.arange(0, D), tl.program_id(1) * BV + tl.arange(0, BV)
    place = state + head.to(tl.int64) * D * V + row[:, None] * V + column[None, :]
    key = tl.load(k + head * D + row).to(tl.float32)
    query = tl.load(q + head * D + row).to(tl.float32) * scale
    memory = tl.load(place) * tl.exp(tl.load(decay + head).to(tl.float32))
    expected = tl.sum(memory * key[:, None], 0)
    value = tl.load(v + head * V + column).to(tl.float32)
    change = (value - expected) * tl.load(beta + head).to(tl.float32)
    memory += key[:, None] * change[None, :]
    tl.store(place, memory)
    result = tl.sum(memory * query[:, None], 0)
    tl.store(out + head * V + column, result.to(out.dtype.element_ty))


# --- checks ---
KERNEL = delta_step
SIGNATURE = {"q": "*bf16", "k": "*bf16", "v": "*bf16", "decay": "*fp32", "beta": "*fp32",
             "state": "*fp32", "out": "*bf16", "scale": "fp32", "D": "constexpr", "V": "constexpr",
             "BV": "constexpr"}
CONSTANTS = {"D": 128, "V": 128, "BV": 32}


def errors(torch):
    H, D, V = 3, 16, 64
    q, k, v = torch.randn(H, D), torch.randn(H, D), torch.randn(H, V)
    decay, beta, state = -torch.rand(H), torch.rand(H), torch.randn(H, D, V)
    memory = state.double() * decay.double().exp()[:, None, None]
    change = (v - torch.einsum("hdv,hd->hv", memory, k.double())) * beta[:, None]
    memory += torch.einsum("hd,hv->hdv", k.double(), change)
    expected = torch.einsum("hdv,hd->hv", memory, q.double()) * D ** -0.5
    out = torch.empty(H, V)
    delta_step[(H, V // 32)](q, k, v, decay, beta, state, out, D ** -0.5, D=D, V=V, BV=32)
    yield (out - expected).abs().max(), 1e-5
    yield (state - memory).abs().max(), 1e-5
