import torch


def reference(x, residual, weight):
    return torch.nn.functional.rms_norm(x + residual, x.shape[1:], weight, 1e-6)
