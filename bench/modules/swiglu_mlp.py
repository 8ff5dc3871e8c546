import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.norm = nn.RMSNorm(hidden, dtype=torch.bfloat16)
        self.gate = nn.Linear(hidden, inner, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(hidden, inner, bias=False, dtype=torch.bfloat16)
        self.down = nn.Linear(inner, hidden, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def get_inputs():
    return [torch.randn(4096, 2048, dtype=torch.bfloat16)]


def get_init_inputs():
    return [2048, 5632]
