"""The bounds and the structure of a tensor's values, as seen in a few calls. Torch only."""

from __future__ import annotations

from typing import Any

import torch

LEAST_SEEN = 16
"""The fewest values from which a structure is recognised."""
ROUGH = {torch.float16: 0.01, torch.bfloat16: 0.05}
"""How far the sum of a row of probabilities may be from 1; 1e-4 in other dtypes."""


def value_range(*tensors: torch.Tensor) -> dict[str, Any]:
    """Return bounds for values like these: none for values that look normally distributed.

    Infinite values, as in masks, count as the largest of their dtype: a task has no others.
    """
    first = tensors[0]
    values = torch.cat([tensor.detach().nan_to_num().double().reshape(-1) for tensor in tensors])
    if not values.numel():
        return _range(None, None, "")
    if first.dtype == torch.bool:
        return _range(0, 2, "true or false")
    low, high = float(values.min()), float(values.max())
    if not first.is_floating_point():
        if high - low > 1 and _is_either(values, low, high):
            return _range(int(low), int(high) + 1, "no other value in a few calls", "two_valued")
        return _range(int(low), int(high) + 1, "the values of a few calls")
    if low == high:
        return _range(low - 0.5, low + 0.5, f"around its value {low:g}")
    if structure := _of_rows(tensors, low, high):
        return _range(None, None, "each row sums to 1", structure)
    if _is_either(values, low, high):
        return _range(low, high, "no other value in a few calls", "two_valued")
    if low >= 0 and high <= 1:
        return _range(0.0, 1.0, "between 0 and 1 in a call")
    if low >= 0:
        return _range(0.0, _rounded(high), "the values of a call")
    deviation = float(values.std()) if values.numel() > 1 else 1.0
    if 0.7 < deviation < 1.4 and high - low > 2.5 * deviation * min(1.0, values.numel() / 64):
        return _range(None, None, "normally distributed")
    return _range(-_rounded(-low), _rounded(high), "the values of a call")


def _range(low: float | None, high: float | None, why: str,
           structure: str | None = None) -> dict[str, Any]:
    return {"low": low, "high": high, "why": why, "structure": structure}


def _is_either(values: torch.Tensor, low: float, high: float) -> bool:
    return values.numel() >= LEAST_SEEN and bool(((values == low) | (values == high)).all())


def _of_rows(tensors: tuple[torch.Tensor, ...], low: float, high: float) -> str:
    """Return the structure of rows that are probabilities, or logarithms of them; "" of others."""
    name = "probabilities" if low > 0 and high < 1 else "log_probabilities" if high < 0 else ""
    if not name or tensors[0].dim() < 1 or tensors[0].shape[-1] < 2 \
            or sum(tensor.numel() for tensor in tensors) < LEAST_SEEN:
        return ""
    near = ROUGH.get(tensors[0].dtype, 1e-4)
    rows = [tensor.detach().double() for tensor in tensors]
    sums = [(part if low > 0 else part.exp()).sum(-1) for part in rows]
    return name if all(bool(((each - 1).abs() < near).all()) for each in sums) else ""


def _rounded(value: float) -> float:
    return float(f"{value:.3g}") or value
