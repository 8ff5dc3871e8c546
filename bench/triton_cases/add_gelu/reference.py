import torch


def reference(x, y):
    total = (x + y).float()
    return (total * torch.sigmoid(1.702 * total)).to(x.dtype)
