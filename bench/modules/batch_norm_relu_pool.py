import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.bn = nn.BatchNorm2d(c)
        self.bn.eval()

    def forward(self, x, y):
        z = F.relu(self.bn(x) + y)
        return F.adaptive_avg_pool2d(z, 1).flatten(1), z


def get_inputs():
    return [torch.randn(64, 256, 56, 56), torch.randn(64, 256, 56, 56)]


def get_init_inputs():
    return [256]
