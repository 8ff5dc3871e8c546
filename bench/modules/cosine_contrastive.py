import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, a, b):
        a = F.normalize(a, dim=-1)
        b = F.normalize(b, dim=-1)
        logits = a @ b.t() / self.temperature
        return F.log_softmax(logits, dim=-1).diagonal().mean()


def get_inputs():
    return [torch.randn(8192, 512), torch.randn(8192, 512)]


def get_init_inputs():
    return [0.07]
