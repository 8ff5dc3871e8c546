"""Says what is special about the memory of a tensor that a kernel returned.

The copy into its slot is not timed, so a kernel that returns a view may have left out work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def memory_of(value: Any, arguments: Sequence[Any]) -> str:
    """Return whose memory it is, or in which order a dense tensor's dimensions lie in it.

    Empty for rows in memory of their own.
    """
    if not value.numel():
        return ""
    at = value.untyped_storage().data_ptr()
    if any(isinstance(argument, torch.Tensor) and argument.untyped_storage().data_ptr() == at
           for argument in arguments):
        return "an argument's memory"
    strides = [stride for size, stride in zip(value.shape, value.stride(), strict=True) if size > 1]
    if 0 in strides:
        return "elements that share memory"
    return "" if strides == sorted(strides, reverse=True) else f"strides {strides}"
