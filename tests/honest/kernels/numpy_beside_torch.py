"""Honest: numpy is imported beside torch, for the sizes of the grid and the tile.

numpy is installed with torch. The kernel converts dtypes; getattr reads its block size.
"""

from tests.honest.case import Honest, problems

SOURCE = """import numpy as np
import torch
import triton
import triton.language as tl


class Tiles:
    SMALL, LARGE = 256, 1024


@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(out + at, (2 * value).to(out.dtype.element_ty), mask=at < n)


def double(x, out):
    n = int(np.int64(x.numel()))
    block = getattr(Tiles, "LARGE" if n > 4096 else "SMALL")
    double_kernel[(triton.cdiv(n, block),)](x, out, n, BLOCK=block)
"""
HONEST = Honest(title="numpy is imported beside torch", source=SOURCE, problem=problems.DOUBLE,
                like=(59,))
