"""The array operations of the oracle, on torch: draw inputs, convert bytes, measure errors."""

from __future__ import annotations

import ctypes
import os
from typing import Any

SAMPLE = 1 << 20


class TorchArrays:
    """Works on float64 tensors, on the judged GPU or on the CPU, without numpy."""

    def __init__(self, device: str) -> None:
        import torch

        self.torch = torch
        self.device = device if torch.cuda.is_available() else "cpu"
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0))))
        self.where, self.floor = torch.where, torch.floor

    def generator(self, seed: int) -> Any:
        return self.torch.Generator(device=self.device).manual_seed(seed)

    def normal(self, shape: list[int], generator: Any) -> Any:
        return self.torch.randn(shape, generator=generator, device=self.device)

    def uniform(self, shape: list[int], generator: Any) -> Any:
        return self.torch.rand(shape, generator=generator, device=self.device)

    def clip(self, value: Any, low: float, high: float) -> Any:
        return value.clamp(low, high)

    def sorted_rows(self, value: Any) -> Any:
        return value.sort(dim=-1).values

    def counted(self, count: int) -> Any:
        return self.torch.arange(count, device=self.device)

    def largest(self, dtype: str) -> float:
        return float(self.torch.finfo(getattr(self.torch, dtype)).max)

    def to_bytes(self, array: Any, dtype: str) -> bytes:
        tensor = array.to(getattr(self.torch, dtype)).contiguous().cpu()
        return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())

    def from_bytes(self, data: bytes, dtype: str, shape: list[int], *, wide: bool = True) -> Any:
        tensor = self.torch.frombuffer(bytearray(data), dtype=getattr(self.torch, dtype)) \
            if data else self.torch.empty(0, dtype=getattr(self.torch, dtype))
        tensor = tensor.reshape(shape).to(self.device)
        if not wide:
            return tensor
        return tensor.to(self.torch.float64 if tensor.is_floating_point() else self.torch.int64)

    def nudged(self, value: Any, part: float, generator: Any) -> Any:
        """Return the value with every element scaled by 1 + part or 1 - part, at random."""
        if value.dtype != self.torch.float64:
            return value
        side = self.torch.rand(value.shape, generator=generator, device=self.device) - 0.5
        return value * (1 + part * side.sign().double())

    def errors(self, got: Any, want: Any) -> tuple[float, float, int]:
        """Return the largest absolute error, the largest relative one, and the non-finite count.

        An error is relative to the expected value or to the root mean square of all expected
        values, whichever is larger.
        """
        torch = self.torch
        if not want.numel():
            return 0.0, 0.0, 0
        finite = torch.isfinite(got) & torch.isfinite(want)
        bad = int((~torch.isfinite(got) & torch.isfinite(want)).sum())
        difference = torch.where(finite, (got - want).abs(), torch.zeros_like(want))
        relative = difference / want.abs().clamp(min=self.scale(want))
        return float(difference.max()), float(relative.max()), bad

    def scale(self, want: Any) -> float:
        return float(want.square().mean().sqrt()) or 1.0

    def typical(self, got: Any, want: Any) -> float:
        """Return the 90th percentile of the relative errors."""
        flat = ((got - want).abs() / want.abs().clamp(min=self.scale(want))).reshape(-1)
        if not flat.numel():
            return 0.0
        return float(flat[:: max(1, flat.numel() // SAMPLE)].quantile(0.9))

    def as_wide(self, value: Any) -> Any:
        return self.torch.as_tensor(value).to(self.device).to(self.torch.float64)

    def finite(self, value: Any) -> bool:
        return bool(self.torch.isfinite(value).all())

    def peak(self, value: Any) -> float:
        return float(value.abs().max()) if value.numel() else 0.0

    def shape(self, value: Any) -> list[int]:
        return list(value.shape)

    def full(self, like: Any, value: float) -> Any:
        return self.torch.full_like(like, value)
