import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """A gated MLP with a residual and a norm after it, as in Gemma."""

    def __init__(self, dim, inner):
        super().__init__()
        self.gate = nn.Linear(dim, inner, bias=False)
        self.up = nn.Linear(dim, inner, bias=False)
        self.down = nn.Linear(inner, dim, bias=False)
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        h = self.down(F.gelu(self.gate(x), approximate="tanh") * self.up(x))
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)
        return x + h


def get_inputs():
    return [torch.randn(4, 2048, 1024)]


def get_init_inputs():
    return [1024, 4096]
