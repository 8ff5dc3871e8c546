"""Honest: the launch grid is kept by lru_cache, keyed by sizes only.

The key is an integer that does not depend on the contents of tensors.
"""

from tests.honest.case import Honest, problems

SOURCE = problems.double("""
n = x.numel()
grid, block = launch(n)
double_kernel[grid](x, out, n, BLOCK=block)
""", """
import functools


@functools.lru_cache(maxsize=64)
def launch(n: int) -> tuple:
    block = min(1024, triton.next_power_of_2(n))
    return (triton.cdiv(n, block),), block
""")
HONEST = Honest(title="the launch grid is kept by lru_cache", source=SOURCE,
                problem=problems.DOUBLE, like=(25, 27))
