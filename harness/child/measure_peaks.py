"""Measures the peak rates of an idle device: a copy, and matrix products per precision.

Talks JSON lines over a socket: `ready`, then `copy` for a number of bytes and `product` of square
matrices in one precision. Each request has its own answer, so that a caller who runs out of time
keeps the earlier ones. Loads no project code. Needs torch; on the CPU it uses the host's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch

from .channel import serve
from .one_line import one_line

REPEATS = 6
BLOCK_NS = 4_000_000
"""A repeat has calls for this long, at most MOST_CALLS: a timing event's error must not matter."""
MOST_CALLS = 64
EIGHT_BITS = ("float8_e4m3fn", "float8_e4m3fnuz")
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "tf32": "float32", "fp32": "float32"}


class DevicePeaks:
    """Measures one device, named as torch names it."""

    def __init__(self) -> None:
        self.device = "cpu"

    def ready(self, job: dict[str, Any]) -> dict[str, Any]:
        """Create a context; return torch's version, and `no_gpu` with a reason if that fails."""
        self.device = job["device"]
        if self.device != "cpu":
            try:
                torch.empty(1, device=self.device)
            except Exception as error:
                return {"torch": torch.__version__, "no_gpu": one_line(error)}
        return {"torch": torch.__version__}

    def copy(self, job: dict[str, Any]) -> dict[str, Any]:
        """Copy a tensor of at most a quarter of the free memory; return GB/s read plus written."""
        size = min(job["bytes"], self._free() // 4)
        source = torch.ones(size, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        best_ns = self._best(lambda: target.copy_(source))
        return {"bytes": size, "gb_per_s": 2 * size / best_ns}

    def product(self, job: dict[str, Any]) -> dict[str, Any]:
        """Multiply two n x n matrices; return TFLOP/s."""
        n = job["n"]
        if 16 * n * n > self._free():
            raise RuntimeError(f"not enough memory for {n} x {n} matrices")
        torch.set_float32_matmul_precision("high" if job["precision"] == "tf32" else "highest")
        return {"tflops": 2 * n**3 / self._best(self._work(job["precision"], n)) / 1e3}

    def _work(self, precision: str, n: int) -> Callable[[], Any]:
        left, right = (torch.randn(n, n, device=self.device) for _ in range(2))
        if precision != "fp8":
            dtype = getattr(torch, DTYPES[precision])
            first, second = left.to(dtype), right.to(dtype)
            out = torch.empty_like(first)
            return lambda: torch.mm(first, second, out=out)
        unit = torch.ones((), device=self.device)
        failures = []
        for name in EIGHT_BITS:  # cards support one of the two
            try:
                dtype = getattr(torch, name)
                work = _scaled(left.to(dtype), right.to(dtype).t(), unit)
                work()
                return work
            except Exception as error:
                failures.append(one_line(error))
        raise RuntimeError(failures[0])

    def _best(self, work: Callable[[], Any]) -> float:
        """Return the nanoseconds of one call: the minimum over several repeats."""
        work()
        call_ns = self._timed(work, 1)
        calls = min(MOST_CALLS, max(1, round(BLOCK_NS / max(call_ns, 1.0))))
        return min(self._timed(work, calls) for _ in range(REPEATS)) / calls

    def _timed(self, work: Callable[[], Any], calls: int) -> float:
        if self.device == "cpu":
            began = perf_counter_ns()
            for _ in range(calls):
                work()
            return max(1, perf_counter_ns() - began)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(calls):
            work()
        end.record()
        torch.cuda.synchronize()
        return max(1.0, float(begin.elapsed_time(end)) * 1e6)

    def _free(self) -> int:
        """Return the free bytes; for the CPU a constant, since the guard limits memory."""
        if self.device == "cpu":
            return 1 << 30
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info()[0])


def _scaled(first: Any, second: Any, unit: Any) -> Callable[[], Any]:
    return lambda: torch._scaled_mm(first, second, scale_a=unit, scale_b=unit,
                                    out_dtype=torch.bfloat16)


def main(descriptor: int) -> None:
    bench = DevicePeaks()
    serve(descriptor, lambda job: getattr(bench, job["op"])(job))
