"""The compiled loop that times calls (timed_loop.c): opened before a candidate is loaded.

The compiled code itself sends a block's times to the owner, so that no Python code comes between
the clock and the report. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

OTHER_MODE = "the kernel, or the loading of it, leaves the processor in another floating-point mode"


class Argument(ctypes.Union):
    """One argument of a C kernel."""

    _fields_ = [("p", ctypes.c_void_p), ("float64", ctypes.c_double), ("float32", ctypes.c_float),
                ("int64", ctypes.c_int64), ("int32", ctypes.c_int32), ("int16", ctypes.c_int16),
                ("int8", ctypes.c_int8), ("uint8", ctypes.c_uint8)]


class CompiledLoop:
    """The library at `path`; it reports on the socket `channel`.

    `keys` holds descriptors: a file with the key that seals its reports (none where several kernels
    share this process), and optionally a socket whose messages the operating system timestamps. The
    key is read once, and Python never sees it. `await_gpu` is the driver's function that waits for
    the GPU; it is called after the calls of a Python block. With `any_mode` a call may leave the
    processor in another floating-point mode.
    """

    def __init__(self, path: str, channel: int, keys: Sequence[int], *, gpu: bool,
                 await_gpu: Any = None, any_mode: bool = False) -> None:
        self._library = ctypes.PyDLL(path)
        failed = self._library.kopt_open(channel, keys[0] if keys else -1, gpu, await_gpu,
                                         keys[1] if len(keys) > 1 else -1, any_mode)
        for key in keys[:1]:
            os.close(key)
        if failed:
            raise OSError("the compiled loop cannot be opened")

    def run(self, function: Any, rows: Any, order: Any) -> int:
        """Call a C function with the rows of arguments in `order`; return the total nanoseconds."""
        run = self._library.kopt_run
        run.restype = ctypes.c_int64
        ns = int(run(function, rows, order, ctypes.c_int64(len(order))))
        if ns < 0:
            raise OSError(OTHER_MODE)
        return ns

    def block(self, function: Any, rows: Any, order: Any, *, stop: bool) -> None:
        """Time a block of calls: wait for the owner's start, call as `run` does, report the time.

        With `stop` this process then stops itself until it is resumed.
        """
        failed = self._library.kopt_block(function, rows, order, ctypes.c_int64(len(order)), stop)
        if failed:
            raise OSError("the channel is closed, or a call has set a signal handler"
                          if failed == -1 else OTHER_MODE)

    def python_block(self, function: Callable[..., Any], rows: list[tuple[Any, ...]],
                     steps: Sequence[Callable[[], Any] | None], *, stop: bool) -> list[Any]:
        """Time a Python function as `block` does; return what each call returned.

        `steps` are functions that are called around the timed calls, each None if not needed:
        fetch, ready, begin, end, await, elapsed.
        """
        block = self._library.kopt_python_block
        block.restype = ctypes.py_object
        results: list[Any] = block(ctypes.py_object(function), ctypes.py_object(rows),
                                   *map(ctypes.py_object, steps), stop)
        return results


def order_of(slots: Sequence[int]) -> Any:
    return (ctypes.c_int32 * len(slots))(*slots)
