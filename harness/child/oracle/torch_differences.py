"""Measures with torch how far answers are from each other."""

from __future__ import annotations

import math
from typing import Any

from .arrays import Arrays

SAMPLED = 1 << 14  # values of a row from which its size is estimated
ROUNDED = 0.97
"""A difference computed in bfloat16, with a few roundings, exceeds this share of the exact one."""


class TorchDifferences(Arrays):
    """Compares tensors row by row; see TorchArrays."""

    torch: Any
    device: str

    def excess(self, got: Any, want: Any, limit: float) -> Any:
        """Return an upper bound of each row's largest relative difference, in units of `limit`.

        A row with at most 1 agrees; for others `differences` decides. Does not wait for the GPU.
        """
        torch = self.torch
        if got.dtype != want.dtype:
            return torch.full((want.shape[0],), math.inf, device=want.device)
        if got.dtype.itemsize == 1 or not got.is_floating_point():
            return (self._countable(got) != self._countable(want)).any(dim=1) * 2.0
        if self.kernels is not None and self.kernels.support(got, want):
            return self.kernels.excess(got, want, limit)
        step = max(1, self.chunk // want.shape[1])
        far = torch.cat([torch.linalg.vector_norm(some - other, math.inf, dim=1)
                         for some, other in zip(got.split(step), want.split(step), strict=True)])
        scale = self._scale_of_rows(want[:, ::max(1, want.shape[1] // SAMPLED)]) / 2
        relative = far.to(scale.dtype) / scale  # the scale of a sample is halved, to have a margin
        return relative / limit if limit > 0 else torch.where(relative == 0, 0.0, 2.0)

    def differences(self, got: Any, want: Any, limit: float = 0.0) -> list[float]:
        """Return the largest relative difference of each row, infinite where one is not finite.

        A difference is relative as in `errors`. Values that are finite on neither side agree.
        With a `limit`, bfloat16 differences below it are only nearly exact: that takes a third of
        the time.
        """
        torch = self.torch
        short = got.dtype == want.dtype and got.dtype in (torch.float32, torch.bfloat16, torch.half)
        if limit > 0 and got.dtype == want.dtype == torch.bfloat16:
            relative = self._relative(got, want).double()
            if len(unsure := (~(relative <= ROUNDED * limit)).nonzero()[:, 0]):
                relative[unsure] = relative.new_tensor(self.differences(got[unsure], want[unsure]))
            return list(relative.tolist())
        got, want = (value.float() if short else value.double() for value in (got, want))
        relative = self._relative(got, want)
        odd = (~torch.isfinite(relative)).nonzero()[:, 0]
        if len(odd):
            got, want = got[odd], want[odd]
            left, right = torch.isfinite(got), torch.isfinite(want)
            got, want = (torch.where(left & right, value, 0.0) for value in (got, want))
            is_one_sided = (left != right).any(dim=1)
            relative[odd] = self._relative(got, want).masked_fill(is_one_sided, math.inf)
        return list(relative.tolist())

    def _relative(self, got: Any, want: Any) -> Any:
        size = want.abs()
        self.torch.maximum(size, self._scale_of_rows(want)[:, None].to(size.dtype), out=size)
        return (got - want).abs_().div_(size).amax(dim=1)

    def _scale_of_rows(self, values: Any) -> Any:
        """Return the root mean square of each row, or 1 where that is zero or not finite."""
        torch = self.torch
        kind = torch.float64 if values.dtype == torch.float64 else torch.float32
        scale = torch.linalg.vector_norm(values, dim=1, dtype=kind) / values.shape[1] ** 0.5
        return torch.where(torch.isfinite(scale) & (scale > 0), scale, 1.0)

    def scale(self, want: Any) -> float:
        return float(self.torch.linalg.vector_norm(want)) / want.numel() ** 0.5 or 1.0

    def as_wide(self, value: Any) -> Any:
        return self.torch.as_tensor(value).to(self.device).to(self.torch.float64)

    def _countable(self, flat: Any) -> Any:
        """Return eight-bit values as integers: eight-bit floats cannot be indexed everywhere."""
        return flat.view(self.torch.uint8) if flat.dtype.itemsize == 1 else flat
