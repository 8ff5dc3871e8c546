"""Triton sources with successive launches or masked loops, and a comparison of two versions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from engine.transformations.transformation import Transformation
from tests.support.kernels.triton_sources import HEAD, LAYER_NORM, MATMUL
from tests.support.programs import forked_program

ADD_GELU = HEAD + '''\
@triton.jit
def add_kernel(x_ptr, y_ptr, sum_ptr, n, BLOCK: tl.constexpr):
    """Adds two vectors."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    tl.store(sum_ptr + at, x + tl.load(y_ptr + at, mask=mask), mask=mask)


@triton.jit
def gelu_kernel(in_ptr, out_ptr, n_elements, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    at = tl.arange(0, BLOCK) + BLOCK * pid
    mask = n_elements > at
    x = tl.load(in_ptr + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, x * tl.sigmoid(1.702 * x), mask=mask)


def add_gelu(x, y):
    total = torch.empty_like(x)
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    add_kernel[grid](x, y, total, n, BLOCK=64)
    out = torch.empty_like(total)
    gelu_kernel[grid](
        total, out, total.numel(), BLOCK=64,
    )
    return out
'''
RESIDUAL_NORM = HEAD + '''\
@triton.jit
def residual_kernel(X, R, S, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    X += row * stride
    R += row * stride
    S += row * stride
    at = tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < cols, other=0.0).to(tl.float32)
    r = tl.load(R + at, mask=at < cols, other=0.0).to(tl.float32)
    tl.store(S + at, x + r, mask=at < cols)


@triton.jit
def rms_kernel(S, W, Y, stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    S += row * stride
    offsets = tl.arange(0, BLOCK)
    mask = offsets < cols
    s = tl.load(S + offsets, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(W + offsets, mask=mask)
    scale = tl.rsqrt(tl.sum(s * s, 0) / cols + eps)
    tl.store(Y + row * stride + offsets, s * scale * w, mask=mask)


def residual_norm(x, residual, weight):
    rows, cols = x.shape
    block = triton.next_power_of_2(cols)
    summed = torch.empty_like(x)
    out = torch.empty_like(x)
    residual_kernel[(rows,)](x, residual, summed, x.stride(0), cols, BLOCK=block, num_warps=4)
    rms_kernel[(rows,)](summed, weight, out, x.stride(0), cols, 1e-6, BLOCK=block, num_warps=4)
    return out, summed
'''
CHAIN = HEAD + '''\
@triton.jit
def square(x):
    return x * x


@triton.jit
def scale_kernel(x, out, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def relu_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, square(tl.maximum(v, 0.0)), mask=i < n)


def chain(x):
    n = x.numel()
    grid = (triton.cdiv(n, 128),)
    with torch.no_grad():
        one = torch.empty(n, dtype=torch.float16)
        two = torch.empty_like(one)
        out = torch.empty_like(x)
        scale_kernel[grid](x, one, 1.7, n, BLOCK=128)
        relu_kernel[grid](one, two, n, BLOCK=128)
        scale_kernel[grid](two, out, 0.3, n, BLOCK=128)
    return out
'''
WRAPPED = CHAIN.partition("def chain")[0] + '''\
@triton.jit
def mul_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * tl.load(y + i, mask=i < n), mask=i < n)


def triton_mul(x: torch.Tensor, y: torch.Tensor):
    """Multiplies."""
    assert x.shape == y.shape, "not the same shape"
    x = x.contiguous()
    y = y.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    SIZE = 64  # lanes
    grid = lambda meta: ((n + meta["BLOCK"] - 1) // meta["BLOCK"],)
    mul_kernel[grid](x, y, out, n, BLOCK=SIZE)
    return out


def triton_relu(x, BLOCK=64):
    x = x.contiguous()
    rows, cols = x.shape
    out = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)
    return out


class Gate(torch.nn.Module):
    def forward(self, a, b):
        a = a + 1
        x = triton_mul(a.t(), b)
        x = triton_relu(x)  # squared
        y = triton_mul(triton_relu(x=x), b)
        return y, x


def wrapped(a, b):
    return Gate()(a, b)
'''
IN_PLACE = ADD_GELU.replace("def add_gelu", "def in_place").replace(
    "    out = torch.empty_like(total)\n", "").replace(
    "        total, out, total.numel()", "        total, total, n").replace(
    "return out", "return total")
NORM_IN_PLACE = RESIDUAL_NORM.replace("def residual_norm", "def norm_in_place").replace(
    "    rows, cols = x.shape\n", "    assert x.dim() == 2 and x.is_contiguous(), 'rows'\n"
    "    rows, cols = x.shape\n").replace("    out = torch.empty_like(x)\n", "").replace(
    "(summed, weight, out, x.stride(0)", "(summed, weight, summed, summed.stride(0)").replace(
    "return out, summed", "return summed")
OTHER_STRIDE = RESIDUAL_NORM.replace("def residual_norm", "def other_stride").replace(
    "    rows, cols", "    x = x.contiguous()\n    rows, cols").replace(
    "weight, out, x.stride(0)", "weight, out, out.stride(0)")
WRAPPED_IN_PLACE = re.sub(  # x is changed by both calls of triton_relu
    r"def triton_relu.*?return out", "def triton_relu(x, BLOCK=64):\n    relu_kernel[(triton.cdiv("
    "x.numel(), BLOCK),)](x, x, x.numel(), BLOCK=BLOCK)\n    return x", WRAPPED.replace(
        "def wrapped", "def wrapped_in_place"), flags=re.DOTALL)
STEPPED = HEAD + '''\
@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr,
                   BK: tl.constexpr):
    pid = tl.program_id(0)
    offs_m = (pid // tl.cdiv(N, BN) * BM + tl.arange(0, BM)) % M
    offs_n = (pid % tl.cdiv(N, BN) * BN + tl.arange(0, BN)) % N
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + offs_m[:, None] * K + offs_k[None, :]
    b_ptrs = b_ptr + offs_k[:, None] * N + offs_n[None, :]
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        # the last block may be partial
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        sums = tl.dot(a, b, sums, input_precision="ieee")
        a_ptrs += BK
        b_ptrs += BK * N
    rows, cols = pid // tl.cdiv(N, BN) * BM, pid % tl.cdiv(N, BN) * BN
    out_m, out_n = rows + tl.arange(0, BM), cols + tl.arange(0, BN)
    tl.store(c_ptr + out_m[:, None] * N + out_n[None, :], sums,
             mask=(out_m[:, None] < M) & (out_n[None, :] < N))


def product(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N))
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 16),)
    product_kernel[grid](a, b, c, M, N, K, BM=16, BN=16, BK=16)
    return c
'''
SEGMENTS = HEAD + '''\
@triton.jit
def segment_kernel(x, begins, ends, out, best, BLOCK: tl.constexpr):
    """The sum of each segment, some of which are empty, with a step of its own for its maximum."""
    part = tl.program_id(0)
    first = tl.load(begins + part)
    last = tl.load(ends + part)
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    most = tl.full([BLOCK], -float("inf"), tl.float32)
    count = 0
    for at in range(first, last, BLOCK):
        inside = at + lanes < last
        values = tl.load(x + at + lanes, inside, 1.0)
        total += tl.where(inside, values, 0.0)
        most = tl.maximum(most, tl.where(inside, values, -float("inf")))
        count += tl.sum(inside.to(tl.int32))
    tl.store(out + part, tl.sum(total, 0) + count)
    tl.store(best + part, tl.max(most, 0))


def segments(x, begins, ends):
    out, best = torch.empty(begins.numel()), torch.empty(begins.numel())
    segment_kernel[(begins.numel(),)](x, begins, ends, out, best, BLOCK=16)
    return out, best
'''
PAIRS = {
    "add_gelu": (ADD_GELU, "torch.randn(3, 77), torch.randn(3, 77)"),
    "residual_norm": (RESIDUAL_NORM, "torch.randn(5, 45).bfloat16(), "
                                     "torch.randn(5, 45).bfloat16(), torch.randn(45)"),
    "chain": (CHAIN, "torch.randn(300)"),
    "in_place": (IN_PLACE, "torch.randn(3, 77), torch.randn(3, 77)"),
    "norm_in_place": (NORM_IN_PLACE, "torch.randn(5, 45).bfloat16(), "
                                     "torch.randn(5, 45).bfloat16(), torch.randn(45)"),
    "other_stride": (OTHER_STRIDE, "torch.randn(45, 5).t(), torch.randn(5, 45), torch.randn(45)"),
    "wrapped_in_place": (WRAPPED_IN_PLACE, "torch.randn(7, 50), torch.randn(7, 50).t()"),
    "wrapped": (WRAPPED, "torch.randn(7, 50), torch.randn(7, 50).t()"),
}
MASKED = {
    "layer_norm": (LAYER_NORM, "torch.randn(5, 50), torch.randn(50), torch.randn(50)"),
    "matmul": (MATMUL, "torch.randn(50, 35), torch.randn(35, 70)"),
    "product": (STEPPED, "torch.randn(50, 35), torch.randn(35, 70)"),
    "segments": (SEGMENTS, "torch.randn(100), torch.tensor([0, 3, 40, 60, 99]), "
                           "torch.tensor([0, 35, 33, 92, 100])"),
}
_PROGRAM = """\
import importlib.util, json, sys
import torch


def results(path, entry, arguments):
    spec = importlib.util.spec_from_file_location("kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(3)
    found = getattr(module, entry)(*eval(f"({arguments},)"))
    return found if isinstance(found, tuple) else (found,)


for entry, arguments, before, after in json.load(open(sys.argv[1])):
    try:
        one, other = results(before, entry, arguments), results(after, entry, arguments)
        same = len(one) == len(other) and all(
            torch.equal(a.nan_to_num(7.5), b.nan_to_num(7.5)) for a, b in zip(one, other))
        print(json.dumps([entry, "" if same else f"{one} became {other}"]))
    except Exception as error:
        print(json.dumps([entry, f"{type(error).__name__}: {error}"]))
"""


def same_bits(transformation: Transformation, cases: Mapping[str, tuple[str, str]],
              folder: Path) -> None:
    """Check that it changes each entry's source, and with these arguments no bit of the results.

    Triton interprets the kernels in one process, without a GPU.
    """
    rows = []
    for entry, (source, arguments) in cases.items():
        changed = transformation.apply(source).source
        assert changed != source
        paths = [folder / f"{entry}_{name}.py" for name in ("before", "after")]
        for path, text in zip(paths, (source, changed), strict=True):
            path.write_text(text)
        rows.append([entry, arguments, *map(str, paths)])
    program, listed = folder / "program.py", folder / "cases.json"
    program.write_text(_PROGRAM)
    listed.write_text(json.dumps(rows))
    printed = forked_program.output(program, str(listed), folder=folder, interpret=True)
    assert [json.loads(line) for line in printed.splitlines()] == [[entry, ""] for entry in cases]
