import torch
from rope import apply_rope_


def reference(q, cos, sin):
    a, b = q.float().chunk(2, -1)
    c, s = cos[None, :, None].float(), sin[None, :, None].float()
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(q.dtype)


for batch, seq, heads, dim in ((4, 4096, 32, 128), (1, 8192, 8, 128), (16, 512, 16, 64)):
    q = torch.randn(batch, seq, heads, dim, device="cuda", dtype=torch.bfloat16)
    angle = torch.outer(torch.arange(seq, device="cuda").float(), 10000 ** (-torch.arange(0, dim, 2, device="cuda").float() / dim))
    cos, sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)
    want = reference(q, cos, sin)
    torch.testing.assert_close(apply_rope_(q.clone(), cos, sin), want, rtol=2e-2, atol=2e-2)
print("ok")
