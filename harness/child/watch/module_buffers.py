"""What the buffers of this process's PyTorch modules contain, in a few numbers each."""

from __future__ import annotations

import gc
from typing import Any

import torch

MOST = 1000


def module_buffers() -> list[dict[str, Any]]:
    """Return each buffer's name within its module, and four numbers about its values."""
    module_class = torch.nn.Module
    return [{"name": name, "numbers": _numbers(value)}
            for module in gc.get_objects() if issubclass(type(module), module_class)
            for name, value in module._buffers.items() if value is not None][:MOST]


def _numbers(value: torch.Tensor) -> list[float]:
    """Return the size, mean and root mean square, and a mean that depends on the values' order."""
    flat = torch.nan_to_num(value.detach().reshape(-1).cpu().double(), 0.0, 0.0, 0.0)
    count = max(1, flat.numel())
    return [float(count), float(flat.sum()) / count, float(flat.square().sum() / count) ** 0.5,
            float((flat * torch.arange(flat.numel()).double().cos()).sum()) / count]
