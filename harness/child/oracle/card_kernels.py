"""The oracle's passes over large values on an NVIDIA card: one kernel each, compiled by NVRTC.

Torch's own operations would go over the same values several times. The source is card_kernels.cu.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from ..compile.rtc import RuntimeCompiler, SourceRefused

SOURCE = Path(__file__).with_name("card_kernels.cu")
THREADS, EACH = 256, 8
VECTOR_BYTES = 16
KINDS = {"bfloat16": 0, "float16": 1, "float32": 2, "float64": 3}


class CardKernels:
    """Launches the kernels on torch's current stream without waiting for them.

    Only `errors` waits, to read its results.
    """

    def __init__(self, torch: Any, dtypes: Iterable[str], folder: Path) -> None:
        """Begin to compile for values of these dtypes, and of float64, the references' dtype.

        What was compiled stays in `folder`. Raises FileNotFoundError where the compiler library is
        missing.
        """
        self._torch, self._folder = torch, folder
        self._compiler = RuntimeCompiler("cuda")
        self._arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
        pool = ThreadPoolExecutor()
        self._code = {getattr(torch, dtype): pool.submit(self._compiled, KINDS[dtype])
                      for dtype in sorted({"float64", *dtypes} & KINDS.keys())}
        pool.shutdown(wait=False)
        self._function = cache(self._loaded)

    def support(self, *values: Any) -> bool:
        """Return whether kernels exist for these tensors: all on the card, of one compiled dtype.
        """
        code = self._code.get(values[0].dtype)
        return code is not None and all(
            value.is_cuda and value.dtype is values[0].dtype for value in values) \
            and not isinstance(code.exception(), SourceRefused)

    def write_windows(self, view: Any, values: Any, factors: Any, places: Any,
                      center: float) -> None:
        """Write rows of values, moved by factors towards `center`.

        `places` has, row by row, where the values and where the factors begin.
        """
        rows, length = view.shape
        self._launch("write_windows", view.dtype, length, rows, view, *view.stride(), values,
                     factors, places[0], places[1], length, float(center))

    def excess(self, got: Any, want: Any, limit: float) -> Any:
        """Return by row the largest relative difference, as a multiple of `limit`.

        A result of at most 1 may be only an upper bound of the difference; a larger one is computed
        from all elements of the row (with a limit of 0 it is 2 for any difference). What a
        difference is relative to: see `Arrays.errors`.
        """
        torch, (rows, columns) = self._torch, want.shape
        squares = torch.zeros(rows, dtype=torch.float64, device=want.device)
        farthest, worst = (torch.zeros(rows, dtype=torch.int32, device=want.device)
                           for _ in range(2))
        size = want.element_size()
        is_even = all(value.data_ptr() % VECTOR_BYTES == 0
                      and value.stride(0) * size % VECTOR_BYTES == 0 for value in (got, want))
        vectors = columns * size // VECTOR_BYTES if is_even else 0
        sides = got, got.stride(0), want, want.stride(0)
        self._launch("scan_rows", want.dtype, vectors or columns, rows, *sides, columns, vectors,
                     squares, farthest)
        self._launch("relative_rows", want.dtype, columns, rows, *sides, columns, squares,
                     farthest, float(limit), worst)
        relative = worst.view(torch.float32).double()
        return relative / limit if limit > 0 else torch.where(relative == 0, 0.0, 2.0)

    def errors(self, got: Any, want: Any, scale: float) -> tuple[float, float, int]:
        """Return the largest absolute and relative error, and how many values are wrong.

        A value counts as wrong if it is not finite although the expected one is.
        """
        torch = self._torch
        got, want = got.contiguous(), want.contiguous()
        results = torch.zeros(3, dtype=torch.int64, device=want.device)
        self._launch("measure_errors", got.dtype, want.numel(), 1, got, want, want.numel(),
                     float(scale), results)
        absolute, relative, _ = results.view(torch.float64).tolist()
        return absolute, relative, int(results[2])

    def _launch(self, name: str, dtype: Any, columns: int, rows: int, *values: Any) -> None:
        """Launch a kernel with one thread for every EACH columns of each row."""
        if not columns or not rows:
            return
        arguments = [_argument(value) for value in values]
        addresses = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        grid = -(-columns // (THREADS * EACH)), rows, 1
        self._function(name, dtype)((*grid, THREADS, 1, 1, 0), addresses, None)

    def _compiled(self, kind: int) -> bytes:
        text = SOURCE.read_bytes()
        digest = hashlib.sha256(text).hexdigest()[:16]
        cached = self._folder / f"card-kernels-{digest}-{self._arch}-{kind}.cubin"
        if cached.exists():
            return cached.read_bytes()
        code, _, _ = self._compiler.build(text, str(SOURCE), "write_windows", self._arch,
                                          [f"-DKIND={kind}"])
        part = cached.with_suffix(f".{os.getpid()}")
        part.write_bytes(code)
        part.replace(cached)
        return code

    def _loaded(self, name: str, dtype: Any) -> Any:
        from ..run.load_device_code import GlobalFunction

        return GlobalFunction(self._code[dtype].result(), name)


def _argument(value: Any) -> Any:
    if isinstance(value, float):
        return ctypes.c_double(value)
    return ctypes.c_longlong(value) if isinstance(value, int) else ctypes.c_void_p(value.data_ptr())
