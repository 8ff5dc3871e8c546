"""One set of inputs with its expected outputs, in the oracle's own memory."""

from __future__ import annotations

import math
from typing import Any


class Contents:
    """Input values by tensor, flattened and in their declared dtypes, and the expected outputs."""

    def __init__(self, arrays: Any, tensors: list[dict[str, Any]], *,
                 partial: bool = False) -> None:
        self.arrays, self.tensors = arrays, tensors
        self.partial = partial
        """Whether only expected values that are finite are compared."""
        self.values: dict[str, Any] = {}
        self.expected: list[Any] = []
        self.dtypes: list[str] = []

    def move(self, tensor: dict[str, Any], to: list[int], source: list[int]) -> None:
        """Copy element `source[i]` to `to[i]` for all i at once."""
        count = math.prod(tensor["shape"])
        if not all(0 <= at < count for at in (*to, *source)):
            raise IndexError(f"moves an element outside of {count}")
        name = tensor["name"]
        self.values[name] = self.arrays.moved(self.values[name], to, source)
