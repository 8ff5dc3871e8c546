"""Triton kernels in the forms that tutorials teach, and a program that calls them interpreted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.support.programs import forked_program

HEAD = """\
import torch
import triton
import triton.language as tl


"""
ADD = HEAD + """\
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    y = tl.load(y_ptr + at, mask=mask)
    tl.store(out_ptr + at, x + y, mask=mask)


def add(x, y):
    out = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
    add_kernel[grid](x, y, out, x.numel(), BLOCK=32)
    return out
"""
SOFTMAX = HEAD + """\
@triton.jit
def softmax_kernel(out_ptr, in_ptr, in_stride, out_stride, cols, BLOCK: tl.constexpr):
    \"\"\"One row for each program.\"\"\"
    row = tl.program_id(0)
    in_ptr += row * in_stride
    out_ptr += row * out_stride
    at = tl.arange(0, BLOCK)  # a power of two
    values = tl.load(in_ptr + at, mask=at < cols, other=-float("inf"))
    power = tl.exp(values - tl.max(values, axis=0))
    tl.store(out_ptr + at, power / tl.sum(power, axis=0), mask=at < cols)


def softmax(x):
    rows, cols = x.shape
    block = triton.next_power_of_2(cols)
    num_warps = 8 if block >= 2048 else 4
    out = torch.empty_like(x)
    softmax_kernel[(rows,)](
        out, x, x.stride(0), out.stride(0), cols, BLOCK=block, num_warps=num_warps,
    )
    return out
"""
LAYER_NORM = HEAD + """\
@triton.jit
def norm_kernel(X, Y, W, B, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    X += row * cols
    Y += row * cols
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, cols, BLOCK):
        at = off + tl.arange(0, BLOCK)
        sums += tl.load(X + at, mask=at < cols, other=0.0).to(tl.float32)
    mean = tl.sum(sums, axis=0) / cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, cols, BLOCK):
        at = off + tl.arange(0, BLOCK)
        x = tl.load(X + at, mask=at < cols, other=0.0).to(tl.float32)
        x = tl.where(at < cols, x - mean, 0.0)
        squares += x * x
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / cols + eps)
    for off in range(0, cols, BLOCK):
        at = off + tl.arange(0, BLOCK)
        x = tl.load(X + at, mask=at < cols, other=0.0).to(tl.float32)
        w = tl.load(W + at, mask=at < cols)
        b = tl.load(B + at, mask=at < cols)
        tl.store(Y + at, (x - mean) * scale * w + b, mask=at < cols)


def layer_norm(x, weight, bias):
    out = torch.empty_like(x)
    rows, cols = x.shape
    norm_kernel[(rows,)](x, out, weight, bias, cols, 1e-5, BLOCK=16, num_warps=4)
    return out
"""
RMS_NORM = HEAD + """\
@triton.jit
def rms_kernel(X, W, Y, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    mask = at < cols
    w = tl.load(W + at, mask=mask)
    x = tl.load(X + row * cols + at, mask=mask, other=0.0)
    scale = tl.rsqrt(tl.sum(x * x, 0) / cols + eps)
    tl.store(Y + row * cols + at, x * scale * w, mask=mask)


def rms_norm(x, weight):
    out = torch.empty_like(x)
    rows, cols = x.shape
    grid = (rows,)
    options = {}
    rms_kernel[grid](x, weight, out, cols, 1e-6, BLOCK=triton.next_power_of_2(cols), **options)
    return out
"""
MATMUL = HEAD + """\
@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    rows = pid_m * BM + tl.arange(0, BM)
    cols = pid_n * BN + tl.arange(0, BN)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        depth = k + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * K + depth[None, :],
                    mask=(rows[:, None] < M) & (depth[None, :] < K), other=0.0)
        y = tl.load(b + depth[:, None] * N + cols[None, :],
                    mask=(depth[:, None] < K) & (cols[None, :] < N), other=0.0)
        sums = tl.dot(x, y, sums, input_precision="ieee")
    tl.store(c + rows[:, None] * N + cols[None, :], sums,
             mask=(rows[:, None] < M) & (cols[None, :] < N))


def matmul(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 32))
    matmul_kernel[grid](a, b, c, M, N, K, BM=16, BN=32, BK=16)
    return c
"""
SOURCES = {"add": ADD, "softmax": SOFTMAX, "layer_norm": LAYER_NORM, "rms_norm": RMS_NORM,
           "matmul": MATMUL}
_PROGRAM = """\
import importlib.util, json, sys
import torch

ARGUMENTS = {"add": [(131,), (131,)], "softmax": [(7, 45)], "layer_norm": [(5, 50), (50,), (50,)],
             "rms_norm": [(6, 33), (33,)], "matmul": [(50, 35), (35, 70)]}
EXPECTED = {
    "add": torch.add, "softmax": lambda x: torch.softmax(x, 1), "matmul": torch.matmul,
    "layer_norm": lambda x, w, b: torch.nn.functional.layer_norm(x, x.shape[1:], w, b),
    "rms_norm": lambda x, w: torch.nn.functional.rms_norm(x, x.shape[1:], w, 1e-6)}
for name, path in (own.split("=") for own in sys.argv[1:]):
    torch.manual_seed(3)
    arguments = [torch.randn(shape) for shape in ARGUMENTS[name]]
    spec = importlib.util.spec_from_file_location("kernel", path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        difference = (getattr(module, name)(*arguments) - EXPECTED[name](*arguments)).abs().max()
        print(json.dumps([name, path, float(difference), ""]))
    except Exception as error:
        print(json.dumps([name, path, float("inf"), f"{type(error).__name__}: {error}"]))
"""


def differences(sources: Sequence[tuple[str, str]], folder: Path) -> list[tuple[float, str]]:
    """Return for each source the largest absolute error of its result, and its exception's text.

    Triton interprets the kernels in one process, without a GPU.
    """
    program = folder / "program.py"
    program.write_text(_PROGRAM)
    words = []
    for number, (name, source) in enumerate(sources):
        path = folder / f"kernel_{number}.py"
        path.write_text(source)
        words.append(f"{name}={path}")
    printed = forked_program.output(program, *words, folder=folder, interpret=True)
    return [(row[2], row[3]) for row in map(json.loads, printed.splitlines())]
