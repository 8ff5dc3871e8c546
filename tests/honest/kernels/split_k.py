"""Honest: a sum split over programs that add with atomics.

The order of the additions varies, and with it the last bit of the sum.
"""

from harness.tasks.target import ConfigClass
from tests.honest import case
from tests.honest.case import Honest, problems

HEAD = """import torch
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x, out, cols, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    total = 0.0
    for start in range(part * BLOCK, cols, SPLITS * BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + row * cols + at, mask=at < cols, other=0.0))
    tl.atomic_add(out + row, total)


def total(x, out):
    out.zero_()
"""
SLOW = "    sum_kernel[(x.shape[0], 1)](x, out, x.shape[1], SPLITS=1, BLOCK=32)\n"
FAST = "    sum_kernel[(x.shape[0], 8)](x, out, x.shape[1], SPLITS=8, BLOCK=64)\n"
x, out = problems.DOUBLE.target.args
PROBLEM = case.texts(case.posed(
    problems.DOUBLE, entry="total", op="total", reference="reference.py:total",
    args=(case.shaped(x, "rows", "cols"), case.shaped(out, "rows")),
    classes=(ConfigClass(name="wide", shape={"rows": 64, "cols": 1 << 16},
                         interpret_shape={"rows": 3, "cols": 1100}),)),
    incumbent=HEAD + SLOW, reference="def total(x):\n    return x.sum(1)\n")
HONEST = Honest(title="a sum split over programs that add with atomics", source=HEAD + FAST,
                problem=PROBLEM, like=(44,))
