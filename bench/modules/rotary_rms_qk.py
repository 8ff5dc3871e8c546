import torch
import torch.nn as nn


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Model(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.qn = nn.RMSNorm(d, dtype=torch.bfloat16)
        self.kn = nn.RMSNorm(d, dtype=torch.bfloat16)

    def forward(self, q, k, cos, sin):
        return rotate(self.qn(q), cos, sin), rotate(self.kn(k), cos, sin)


def get_inputs():
    b = torch.bfloat16
    return [
        torch.randn(4, 4096, 32, 128, dtype=b),
        torch.randn(4, 4096, 8, 128, dtype=b),
        torch.randn(4096, 1, 64, dtype=b),
        torch.randn(4096, 1, 64, dtype=b),
    ]


def get_init_inputs():
    return [128]
