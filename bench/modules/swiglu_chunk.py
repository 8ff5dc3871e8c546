import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(2 * inner, dtype=torch.bfloat16))

    def forward(self, x):
        gate, up = (x + self.bias).chunk(2, dim=-1)
        return F.silu(gate) * up


def get_inputs():
    return [torch.randn(8192, 2 * 11008, dtype=torch.bfloat16)]


def get_init_inputs():
    return [11008]
