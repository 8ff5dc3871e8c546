"""Honest: triton.autotune chooses among configurations, by the size.

It times the configurations on the first calls and caches the choice by size only.
"""

from tests.honest.case import Honest, problems

SOURCE = """import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 256}, num_warps=2),
                          triton.Config({"BLOCK": 1024}, num_warps=4)], key=["n"])
@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def double(x, out):
    n = x.numel()
    double_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
"""
HONEST = Honest(title="triton.autotune chooses among configurations", source=SOURCE, gpu=True,
                problem=problems.DOUBLE, like=(13, 14))
