"""Makes Triton's interpreter refuse stores outside the tensors of a launch, which damage memory.

A launch without tensors, and one that makes pointers of integers, may write anywhere: these are not
checked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import triton


class StoreOutside(RuntimeError):
    """A kernel stores outside every tensor that its launch was given."""


class LaunchedTensors:
    """The memory of the present launch's tensors: first address, end address and name of each."""

    def __init__(self) -> None:
        self.ranges: tuple[tuple[int, int, str], ...] = ()

    def check(self, pointers: Any, mask: Any, size: int) -> None:
        """Raise StoreOutside if a store of `size` bytes at any pointer lies in no tensor."""
        if not self.ranges:
            return
        at = np.asarray(pointers)[np.asarray(mask, dtype=bool)].astype(np.int64)
        outside = np.ones(at.shape, dtype=bool)
        for begin, end, _ in self.ranges:
            outside &= (at < begin) | (at + size > end)
        if outside.any():
            raise StoreOutside(self._describe(int(outside.sum()), int(at[outside][0])))

    def _describe(self, count: int, first: int) -> str:
        begin, end, name = min(self.ranges, key=lambda each: max(each[0] - first, first - each[1]))
        where = f"{first - end} bytes past the end" if first >= begin else \
            f"{begin - first} bytes before the beginning"
        values = "a value" if count == 1 else f"{count} values"
        return (f"{_storing_line()} stores {values} outside its tensors, the first {where} of "
                f"{name}: give the store a mask, or correct its offsets")


def install() -> None:
    """Patch the interpreter of this process, once."""
    from triton.runtime import interpreter

    launched, builder = LaunchedTensors(), interpreter.InterpreterBuilder
    executor: Any = interpreter.GridExecutor
    if not hasattr(executor, "_init_args_hst") or hasattr(executor, "launched"):
        return
    executor.launched = launched
    to_host, run = executor._init_args_hst, executor.__call__
    store, to_pointer = builder.create_masked_store, builder.create_int_to_ptr

    def init_args(self: Any, args: Any, kwargs: Any) -> Any:
        hosts, named = to_host(self, args, kwargs)
        pairs = [*zip(self.arg_names, hosts, strict=False), *named.items()]
        launched.ranges = tuple(_ranges(pairs))
        return hosts, named

    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return run(self, *args, **kwargs)
        finally:
            launched.ranges = ()

    def masked_store(self: Any, pointers: Any, value: Any, mask: Any, *options: Any) -> Any:
        launched.check(pointers.data, mask.data, value.data.dtype.itemsize)
        return store(self, pointers, value, mask, *options)

    def int_to_ptr(self: Any, *values: Any) -> Any:
        launched.ranges = ()
        return to_pointer(self, *values)

    executor._init_args_hst, executor.__call__ = init_args, launch
    builder.create_masked_store, builder.create_int_to_ptr = masked_store, int_to_ptr


def _ranges(named: Any) -> Iterator[tuple[int, int, str]]:
    for name, value in named:
        if isinstance(value, tuple):
            yield from _ranges((name, each) for each in value)
            continue
        tensor = getattr(value, "base", value)  # a tensor descriptor has one
        tensor = tensor if hasattr(tensor, "untyped_storage") else value
        if hasattr(tensor, "untyped_storage"):
            storage = tensor.untyped_storage()
            yield storage.data_ptr(), storage.data_ptr() + storage.nbytes(), name


def _storing_line() -> str:
    """Return the line of the kernel that stores, such as `double.py:9, _kernel`."""
    frame, not_own = sys._getframe(1), (os.path.dirname(triton.__file__) + os.sep, __file__)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(not_own):
        frame = frame.f_back
    code = frame.f_code
    return f"{os.path.basename(code.co_filename)}:{frame.f_lineno}, {code.co_name}"
