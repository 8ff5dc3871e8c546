"""Says what is special about the memory of a tensor that a kernel returned.

The copy into its slot is not timed, so a kernel that returns a view may have left out work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

plain = torch.Tensor.detach
"""Return the same values as an object without the attributes that a kernel may have set."""
_storage_of, _address, _size = (torch.Tensor.untyped_storage, torch.UntypedStorage.data_ptr,
                                torch.UntypedStorage.nbytes)


def memories_of(values: Sequence[Any], arguments: Sequence[Any]) -> list[str]:
    """Return for each value whose memory it shares, else its strides if they are unusual.

    "" for contiguous or padded rows in memory of their own. Addresses are compared: a tensor that
    was made through numpy or DLPack has another storage in the same memory.
    """
    storages = [_storage(argument) for argument in arguments if isinstance(argument, torch.Tensor)]
    return [_memory_of(value, storages, values[:number]) if value.numel() else ""
            for number, value in enumerate(values)]


def _memory_of(value: Any, storages: Iterable[tuple[int, int]], before: Iterable[Any]) -> str:
    span = _elements(value)
    if any(_overlap(span, storage) for storage in storages):
        return "an argument's memory"
    if any(_overlap(span, _elements(other)) and not _are_parts_of_rows(value, other)
           for other in before if other.numel()):
        return "another output's memory"
    strides = [stride for size, stride in zip(value.shape, value.stride(), strict=True) if size > 1]
    if not _are_apart(value):
        return "elements that share memory"
    return "" if strides == sorted(strides, reverse=True) else f"strides {strides}"


def _storage(tensor: Any) -> tuple[int, int]:
    """Return the first address of a tensor's storage and the address behind its last byte."""
    storage = _storage_of(tensor)
    return _address(storage), _address(storage) + _size(storage)


def _elements(tensor: Any) -> tuple[int, int]:
    """Return the address of a tensor's first element and the address behind its last one."""
    last = sum(stride * (size - 1)
               for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _are_parts_of_rows(value: Any, other: Any) -> bool:
    """Return whether two tensors hold different parts of the same rows, as chunks of one do."""
    steps, other_steps = _byte_steps(value), _byte_steps(other)
    for row in {stride for stride, _ in steps} & {stride for stride, _ in other_steps}:
        if any(stride % row for stride, _ in steps + other_steps if stride > row):
            continue
        length, other_length = (
            tensor.element_size() + sum(step * (size - 1) for step, size in sizes if step < row)
            for tensor, sizes in ((value, steps), (other, other_steps)))
        distance = (other.data_ptr() - value.data_ptr()) % row
        if length <= distance <= row - other_length:
            return True
    return False


def _byte_steps(tensor: Any) -> list[tuple[int, int]]:
    """Return the stride in bytes and the size of each dimension with several elements."""
    return [(stride * tensor.element_size(), size)
            for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def _are_apart(value: Any) -> bool:
    """Return whether each dimension steps over all elements of those with smaller strides."""
    reach = 0
    for stride, size in sorted(zip(value.stride(), value.shape, strict=True)):
        if size > 1 and stride <= reach:
            return False
        reach += stride * (size - 1)
    return True
