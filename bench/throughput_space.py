"""The space of `bench/throughput.py`: a bfloat16 product of 4096 x 4096 matrices, tiled."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from harness import target
from harness.search.space import knobs
from harness.search.space.space import Config
from harness.target import Arg, ConfigClass, Target

SIZE = 4096
SHARED = 227 << 10
"""What a block can have on an H200; a config's loads for all its stages are to fit."""
FEWEST, MOST = 32, 128
"""Values of the tile that a thread may accumulate: fewer are idle, more spill."""

SOURCE = '''import triton
import triton.language as tl

BLOCK_M = 64  # kopt: knob BLOCK_M in [64, 128, 256]
BLOCK_N = 64  # kopt: knob BLOCK_N in [64, 128, 256]
BLOCK_K = 32  # kopt: knob BLOCK_K in [32, 64, 128]
NUM_WARPS = 4  # kopt: knob NUM_WARPS in [4, 8]
NUM_STAGES = 2  # kopt: knob NUM_STAGES in [2, 3, 4, 5]
GROUP = 8


@triton.jit
def matmul_kernel(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                  GROUP: tl.constexpr):
    tile = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    first = tile // (GROUP * tiles_n) * GROUP
    height = min(tiles_m - first, GROUP)
    at_m = (first + tile % (GROUP * tiles_n) % height) * BM + tl.arange(0, BM)
    at_n = tile % (GROUP * tiles_n) // height * BN + tl.arange(0, BN)
    at_k = tl.arange(0, BK)
    left = a + (at_m % m)[:, None] * k + at_k[None, :]
    right = b + at_k[:, None] * n + (at_n % n)[None, :]
    sums = tl.zeros((BM, BN), tl.float32)
    for step in range(0, k, BK):
        sums = tl.dot(tl.load(left, at_k[None, :] < k - step, 0.0),
                      tl.load(right, at_k[:, None] < k - step, 0.0), sums)
        left += BK
        right += BK * n
    tl.store(c + at_m[:, None] * n + at_n[None, :], sums.to(tl.bfloat16),
             (at_m < m)[:, None] & (at_n < n)[None, :])


def launch(a, b, c, block_m, block_n, block_k, warps, stages):
    m, k = a.shape
    n = b.shape[1]
    matmul_kernel[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)](
        a, b, c, m, n, k, block_m, block_n, block_k, GROUP, num_warps=warps, num_stages=stages)


def matmul(a, b, c):
    launch(a, b, c, BLOCK_M, BLOCK_N, BLOCK_K, NUM_WARPS, NUM_STAGES)
'''
REFERENCE = "def matmul(a, b):\n    return a @ b\n"


def configs() -> list[Config]:
    """Return the configurations whose loads and sums fit: 128, in the order of the knobs."""
    found: list[Config] = []
    for m, n, k, warps, stages in product((64, 128, 256), (64, 128, 256), (32, 64, 128), (4, 8),
                                          (2, 3, 4, 5)):
        if 2 * (m * k + k * n) * stages <= SHARED and FEWEST <= m * n // (32 * warps) <= MOST:
            found.append({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "NUM_WARPS": warps,
                          "NUM_STAGES": stages})
    return found


def source(config: Config) -> str:
    return knobs.apply(SOURCE, config, language="triton")


def write(folder: Path, text: str = SOURCE) -> str:
    """Write a tree with a source; returns its path."""
    folder.mkdir(parents=True)
    (folder / "kernel.py").write_text(text)
    (folder / "reference.py").write_text(REFERENCE)
    return str(folder)


def task(size: int = SIZE) -> Target:
    matrices = [Arg(name=name, dtype="bfloat16", shape=shape, role="output" if name == "c" else
                    "input") for name, shape in (("a", ("m", "k")), ("b", ("k", "n")),
                                                 ("c", ("m", "n")))]
    made = Target(op="matmul", language="triton", source="kernel.py", entry="matmul",
                  reference="reference.py:matmul", args=tuple(matrices), flops="2*m*n*k",
                  classes=(ConfigClass(name="square", shape=dict.fromkeys("mnk", size)),))
    target.check(made)
    return made
