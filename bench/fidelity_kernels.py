"""Six kernels behind one entry point, from 2 us to 1 ms, each with adjustable extra work."""

from __future__ import annotations

from pathlib import Path

from harness.tasks import task_file
from harness.tasks.target import Arg, ConfigClass, Target

CLASSES = {"softmax-64x1024": 2, "softmax-1024x2048": 5, "softmax-6144x4096": 26,
           "matmul-2560": 65, "matmul-4096": 250, "iterated-1024x2048": 1000}
"""About how many microseconds each takes on an H200."""
SHAPES = {"softmax-64x1024": (0, 64, 1024, 1), "softmax-1024x2048": (1, 1024, 2048, 1),
          "softmax-6144x4096": (2, 6144, 4096, 1), "matmul-2560": (3, 2560, 2560, 2560),
          "matmul-4096": (4, 4096, 4096, 4096), "iterated-1024x2048": (5, 1024, 2048, 1)}
"""(kind, rows, inner, columns)."""

_SOURCE = '''import triton
import triton.language as tl

EXTRA = {extra}  # by kind: steps of arithmetic whose result nothing needs, or rows done twice
STEPS = [16, 16, 0, 16, 16, 118_000]  # by kind: those that both sides take


@triton.jit
def spun(seed, steps):
    value = seed
    for _ in range(steps):
        value = value * 0.999 + 0.5
    return tl.where(value == 12345.678, 1.0, 0.0)


@triton.jit(do_not_specialize=["steps"])
def softmax_kernel(x, out, rows, steps, COLS: tl.constexpr):
    row = (tl.program_id(0) % rows).to(tl.int64) * COLS
    at = tl.arange(0, COLS)
    value = tl.load(x + row + at).to(tl.float32)
    power = tl.exp(value - tl.max(value, 0))
    result = power / tl.sum(power, 0)
    if steps > 0:
        result += spun(tl.sum(power, 0), steps)
    tl.store(out + row + at, result)


@triton.jit(do_not_specialize=["steps"])
def matmul_kernel(a, b, out, M, K, N, steps, BM: tl.constexpr, BN: tl.constexpr,
                  BK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    rows, cols = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = pid // (GROUP * cols) * GROUP
    high = min(rows - first, GROUP)
    m, n = first + pid % (GROUP * cols) % high, pid % (GROUP * cols) // high
    at_m, at_n = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
    at_k = tl.arange(0, BK)
    left = a + (at_m % M)[:, None] * K + at_k[None, :]
    right = b + at_k[:, None] * N + (at_n % N)[None, :]
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        sums = tl.dot(tl.load(left, at_k[None, :] < K - k, 0.0),
                      tl.load(right, at_k[:, None] < K - k, 0.0), sums)
        left += BK
        right += BK * N
    if steps > 0:
        sums += spun(tl.load(a + m).to(tl.float32), steps)
    tl.store(out + at_m[:, None] * N + at_n[None, :], sums,
             (at_m < M)[:, None] & (at_n < N)[None, :])


def run(x, y, out, kind):
    rows, inner = x.shape
    extra = EXTRA.get(kind, 0)
    steps = STEPS[kind] + extra
    if kind < 2 or kind == 5:
        softmax_kernel[(rows,)](x, out, rows, steps, inner, num_warps=4)
    elif kind == 2:  # arithmetic would hide behind its memory
        softmax_kernel[(rows + extra,)](x, out, rows, 0, inner, num_warps=8)
    else:
        cols = y.shape[1]
        matmul_kernel[(triton.cdiv(rows, 128) * triton.cdiv(cols, 256),)](
            x, y, out, rows, inner, cols, steps, 128, 256, 64, 8, num_warps=8, num_stages=3)
'''
_REFERENCE = '''import torch


def run(x, y, kind):
    return torch.softmax(x, -1) if kind < 3 or kind == 5 else x @ y
'''


def source(extra: dict[str, int]) -> str:
    """Return the kernels' source with extra work by class."""
    return _SOURCE.replace("{extra}", repr({SHAPES[n][0]: amount for n, amount in extra.items()}))


def write(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / "kernel.py").write_text(text)
    (folder / "reference.py").write_text(_REFERENCE)


def task() -> Target:
    """Return the task of all six classes."""
    made = Target(
        op="fidelity", language="triton", source="kernel.py", entry="run",
        reference="reference.py:run",
        args=(Arg(name="x", dtype="bfloat16", shape=("rows", "inner")),
              Arg(name="y", dtype="bfloat16", shape=("depth", "cols")),
              Arg(name="out", dtype="bfloat16", shape=("rows", "width"), role="output"),
              Arg(name="kind", dtype="int32", value="kind")),
        classes=tuple(_class(name, *shape) for name, shape in SHAPES.items()))
    task_file.check(made)
    return made


def _class(name: str, kind: int, rows: int, inner: int, cols: int) -> ConfigClass:
    product = kind in (3, 4)
    return ConfigClass(name=name, shape={
        "rows": rows, "inner": inner, "cols": cols if product else 1, "kind": kind,
        "depth": inner if product else 1, "width": cols if product else inner})
