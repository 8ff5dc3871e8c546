"""Runs a PyTorch reference as if each of its operations rounded its result."""

from __future__ import annotations

from typing import Any

import torch
import torch._refs
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode


class RoundedOperations(TorchDispatchMode):
    """Scales the float64 result of each operation by a number from 1 - part to 1 + part.

    Operations such as layer norm are taken apart first, so that a mean inside of them is rounded
    too. This is Monte Carlo arithmetic (Parker, 1997) with one number for a whole tensor, as sums
    of equal values are all off by the same amount.
    """

    def __init__(self, part: float, seed: int) -> None:
        super().__init__()
        self._part, self._generator = part, torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in decomposition_table:
            with self:
                results = decomposition_table[func](*args, **kwargs)
            if results is not NotImplemented:
                return results
        results = func(*args, **kwargs)
        each = results if isinstance(results, tuple | list) else [results]
        if len(each) != len(func._schema.returns):
            return results
        rounded = [value if declared.alias_info is not None else self._rounded(value)
                   for value, declared in zip(each, func._schema.returns, strict=True)]
        return rounded[0] if each is not results else type(results)(rounded)

    def _rounded(self, value: Any) -> Any:
        if not torch.is_tensor(value) or value.dtype != torch.float64:
            return value
        side = 2 * float(torch.rand((), generator=self._generator)) - 1
        return value * (1 + self._part * side)
