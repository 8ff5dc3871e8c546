import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(hidden, dtype=torch.bfloat16)
        self.qkv = nn.Linear(hidden, 3 * hidden, dtype=torch.bfloat16)
        self.out = nn.Linear(hidden, hidden, dtype=torch.bfloat16)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        q = q.view(b, n, self.heads, -1).transpose(1, 2)
        k = k.view(b, n, self.heads, -1).transpose(1, 2)
        v = v.view(b, n, self.heads, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(b, n, c))


def get_inputs():
    return [torch.randn(4, 2048, 1024, dtype=torch.bfloat16)]


def get_init_inputs():
    return [1024, 16]
