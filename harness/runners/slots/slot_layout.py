"""Where the tensors of a call lie in a slot of shared memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.isolation.rpc import PeerError
from harness.tasks.target import DTYPE_BYTES, MAX_ELEMENTS

GUARD_BYTES = 4096
"""Bytes of poison before the first tensor and after each, which no kernel may write."""
LINE_BYTES = 64
WIDEST = max(DTYPE_BYTES.values())


@dataclass(frozen=True, kw_only=True)
class ReturnedTensor:
    """A tensor that a kernel returned, as its runner reports it.

    `memory` says what is special about its memory, "" if nothing. Copying it to a slot is untimed.
    """

    dtype: str
    shape: tuple[int, ...]
    memory: str = ""

    def __post_init__(self) -> None:
        if not all(0 <= size <= MAX_ELEMENTS for size in self.shape):
            raise ValueError("not a shape")
        if len(self.memory) > 200:
            raise ValueError("not a description of memory")

    @property
    def nbytes(self) -> int:
        if self.dtype not in DTYPE_BYTES:
            raise PeerError(f"returned the unknown dtype {self.dtype[:40]}")
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, kw_only=True)
class PreparedAnswer:
    """A runner's answer to `prepare` and to `call`."""

    returned: tuple[ReturnedTensor, ...] = ()


def placed(tensors: Sequence[Mapping[str, Any]], *, end: int = GUARD_BYTES,
           interpret: bool = False) -> tuple[list[dict[str, Any]], int]:
    """Return tensors with the `offset`, `nbytes` and `stored` dtype that they have in a slot.

    Also returns where the last guard zone ends. Triton's interpreter gets bfloat16 as float32.
    A tensor with the layout "columns" takes twice its bytes; one with "end" ends less than a
    cache line before a guard zone.
    """
    result = []
    for tensor in tensors:
        if tensor["role"] == "scalar":
            result.append(dict(tensor))
            continue
        stored, nbytes = tensor["dtype"], tensor["nbytes"]
        if interpret and stored == "bfloat16":
            stored, nbytes = "float32", 2 * nbytes
        if tensor.get("layout") == "columns":
            nbytes *= 2
        reserved = -(-nbytes // GUARD_BYTES) * GUARD_BYTES
        shift = (reserved - nbytes) // LINE_BYTES * LINE_BYTES
        result.append({**tensor, "stored": stored, "nbytes": nbytes,
                       "offset": end + (shift if tensor.get("layout") == "end" else 0)})
        end += reserved + GUARD_BYTES
    return result, end


def return_regions(shapes: Sequence[Sequence[int]], end: int) -> tuple[list[dict[str, Any]], int]:
    """Return regions for returned tensors of these shapes, of any dtype, and where they end."""
    return placed([{"name": "return", "role": "return", "dtype": "uint8", "shape": list(shape),
                    "nbytes": math.prod(shape) * WIDEST} for shape in shapes], end=end)
