"""Root-mean-square normalisation in float64."""

import numpy as np


def rmsnorm(x, weight, eps):
    scale = 1.0 / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + eps)
    return x * scale * weight
