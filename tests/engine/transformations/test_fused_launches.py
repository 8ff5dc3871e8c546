"""Two launches become one if each program of the second reads what it wrote in the first."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.transformations.transformation import DoesNotApply
from engine.transformations.triton.fusion.fused_launches import FusedLaunches
from tests.support.kernels import triton_pairs
from tests.support.kernels.triton_pairs import (
    ADD_GELU,
    CHAIN,
    IN_PLACE,
    NORM_IN_PLACE,
    OTHER_STRIDE,
    RESIDUAL_NORM,
    WRAPPED,
)


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_fused_launches_compute_the_same_bits(tmp_path: Path) -> None:
    triton_pairs.same_bits(FusedLaunches(), triton_pairs.PAIRS, tmp_path)


@pytest.mark.parametrize(("source", "launches", "stores"), [
    (ADD_GELU, 1, 1),
    (RESIDUAL_NORM, 1, 2),  # the sum is returned
    (IN_PLACE, 1, 1), (NORM_IN_PLACE, 1, 1), (OTHER_STRIDE, 1, 2),
    (CHAIN, 1, 1),  # three launches, two of them of one kernel
])
def test_one_launch_is_left_and_only_what_is_used_later_is_stored(
        source: str, launches: int, stores: int) -> None:
    fused = FusedLaunches().apply(source).source
    assert len(re.findall(r"\w\[.*\]\(", fused.partition("\ndef ")[2].rpartition("def ")[2])) \
        == launches
    assert fused.count("tl.store(") == stores
    assert fused.count("@triton.jit") == 1 + ("def square" in source)
    with pytest.raises(DoesNotApply, match="no function launches two kernels"):
        FusedLaunches().apply(fused)


def test_value_is_rounded_to_the_type_of_the_intermediate_tensor() -> None:
    fused = FusedLaunches().apply(RESIDUAL_NORM).source
    assert "summed_value = (x + r).to(S.dtype.element_ty)" in fused
    assert "s = tl.where(mask, summed_value, tl.cast(0.0, summed_value.dtype)).to(tl.float32)" \
        in fused


def test_kernel_that_is_launched_elsewhere_stays() -> None:
    source = ADD_GELU + "\n\ndef add(x, y, out):\n    add_kernel[(1,)](x, y, out, 8, BLOCK=8)\n"
    fused = FusedLaunches().apply(source).source
    assert "def add_kernel(" in fused and "def gelu_kernel(" not in fused


@pytest.mark.parametrize(("old", "new", "why"), [
    ("total, out, total.numel(), BLOCK", "total, out, total.numel(), factor=f(x), BLOCK",
     "different grids or options"),
    ("add_kernel[grid](x, y,", "add_kernel[grid](load(x), y,", "is a call"),
    ("@triton.jit\ndef gelu", "@triton.jit(noinline=True)\ndef gelu", "differ in decorator"),
    ("    total = torch.empty_like(x)\n", "    total = torch.zeros_like(x)\n    x = x[:1]\n",
     "its mask differs"),
    ("    total = torch.empty_like(x)\n    n = x.numel()\n",
     "    n = x.numel()\n    x = x[:1]\n    total = torch.empty_like(x)\n", "its mask differs"),
    ("    total = torch.empty_like(x)", "    total = x", "has not allocated"),
    ("    total = torch.empty_like(x)", "    total = torch.add(x, x, out=y)", "not allocated"),
    ("    out = torch.empty_like(total)\n", "    out = y[1:]\n", "not allocated|between"),
    ("    out = torch.empty_like(total)\n", "    out = total\n", "not allocated"),
    ("    out = torch.empty_like(total)", "    out = total.clone()", "between the launches"),
    ("    out = torch.empty_like(total)", "    n = n // 2\n    out = torch.empty_like(total)",
     "between the launches"),
    ("    n = x.numel()\n", "    n = x.numel()\n    keep(total)\n", "before the second launch"),
    ("        total, out, total.numel()", "        total.view(-1), out, total.numel()",
     "is a call"),
    ("        total, out, total.numel()", "        total[1:], out, total.numel()",
     "before the second launch"),
    ("        total, out, total.numel()", "        total, out, n - 1", "its mask differs"),
    ("        total, out, total.numel(), BLOCK=64", "        total, out, n, BLOCK=32",
     "different grids"),
    ("total.numel(), BLOCK=64", "total.numel(), BLOCK=64, num_warps=8", "different grids or"),
    ("tl.load(in_ptr + at, mask=mask, other=0.0)", "tl.load(in_ptr + at + 1, mask=mask, other=0.0)",
     "its address in total"),
    ("tl.load(in_ptr + at, mask=mask, other=0.0)", "tl.load(in_ptr + at, other=0.0)",
     "its mask differs"),
    ("tl.load(in_ptr + at, mask=mask, other=0.0)", "tl.load(in_ptr + at, mask=mask, other=pid)",
     "`other` is not a number"),
    ("    x = tl.load(in_ptr + at, mask=mask, other=0.0).to(tl.float32)\n",
     "    x = tl.load(in_ptr + at, mask=mask).to(tl.float32)\n    x -= tl.max(x, 0)\n",
     "masked-off lanes of total are undefined"),
    ("    x = tl.load(in_ptr + at, mask=mask, other=0.0).to(tl.float32)\n",
     "    i = tl.load(in_ptr + at, mask=mask, other=0.0).to(tl.int32)\n"
     "    x = tl.load(out_ptr + i, mask=mask)\n", "controls what is read"),
    ("    x = tl.load(in_ptr", "    if pid > 3:\n        return\n    x = tl.load(in_ptr",
     "not a simple assignment"),
    ("    x = tl.load(x_ptr", "    tl.atomic_add(sum_ptr + at, 1.0)\n    x = tl.load(x_ptr",
     "not a simple assignment or store"),
    ("    tl.store(sum_ptr + at, x + tl.load(y_ptr + at, mask=mask), mask=mask)\n",
     "    tl.store(sum_ptr + at, tl.max(x, 0), mask=mask)\n", "shape of the value"),
    ("    tl.store(sum_ptr + at, x +", "    tl.store(sum_ptr + at, x, mask=mask)\n"
     "    tl.store(sum_ptr + at, x +", "written more than once"),
    ("    x = tl.load(x_ptr + at, mask=mask)", "    x = tl.cumsum(tl.load(x_ptr + at), 0)",
     "may use other lanes"),
    ("@triton.jit\ndef gelu", "@triton.autotune([], key=[])\n@triton.jit\ndef gelu", "autotuner"),
    ("    n = x.numel()\n", "    n = n.numel()\n    grid = m.size(n)\n    m = n.size(m)\n",
     "different grids"),
    ("def add_gelu(x, y):\n", "def add_gelu(x, y, total):\n", "has not allocated"),
])
def test_launches_whose_order_matters_are_refused(old: str, new: str, why: str) -> None:
    assert old in ADD_GELU
    with pytest.raises(DoesNotApply, match=why):
        FusedLaunches().apply(ADD_GELU.replace(old, new))


def test_launches_in_a_loop_are_refused() -> None:
    head, launch, rest = ADD_GELU.partition("    add_kernel[grid]")
    inside = "".join(f"    {line}\n" for line in (launch + rest).splitlines()[:-1])
    with pytest.raises(DoesNotApply, match="no function launches two"):
        FusedLaunches().apply(f"{head}    for _ in range(2):\n{inside}    return out\n")


def test_calls_of_functions_that_launch_a_kernel_become_one_launch() -> None:
    fused = FusedLaunches().apply(WRAPPED).source
    forward = fused.partition("def forward")[2].partition("def wrapped")[0]
    assert len(re.findall(r"kernel\w*\[", forward)) == 1, forward
    assert forward.index("x = out") < forward.index("return y, x")


@pytest.mark.parametrize(("old", "new", "why"), [
    ("        x = triton_relu(x)  # squared\n", "        x = triton_relu(x) + 1\n",
     "no function launches"),
    ("        x = triton_relu(x)  # squared\n", "        x.add_(1)\n", "no function launches"),
    ("        x = triton_relu(x)  # squared\n", "        x = triton_relu((x := b))\n",
     "no function launches"),
    ("        a = a + 1\n", "        triton = a\n", "no function launches"),
    ("        a = a + 1\n", "        meta = a\n", "no function launches"),
    ("    rows, cols = x.shape\n", "    print(rows)\n", "between the launches"),
    ("    rows, cols = x.shape\n", "    x = x.flip(0)\n", "different grids"),
    ("    x = x.contiguous()\n    y =", "    y =", "different grids"),
    ("    rows, cols = x.shape\n", "    if x is None:\n        x = 9\n", "no function launches"),
    ("    SIZE = 64  # lanes", "    SIZE = 32", "different grids"),
    ("def triton_relu(", "@torch.compile\ndef triton_relu(", "no function launches"),
])
def test_calls_that_do_more_than_launch_are_left_alone(old: str, new: str, why: str) -> None:
    source = WRAPPED.replace("        y = triton_mul(triton_relu(x=x), b)\n", "        y = x\n")
    assert old in source
    with pytest.raises(DoesNotApply, match=why):
        FusedLaunches().apply(source.replace(old, new))


@pytest.mark.parametrize(("source", "old", "new", "why"), [
    (IN_PLACE, "    x = tl.load(in_ptr", "    tl.store(out_ptr + at, pid, mask=mask)\n"
     "    x = tl.load(in_ptr", "read again after it was overwritten"),
    (IN_PLACE, "tl.store(out_ptr + at,", "tl.store(out_ptr + at + 1,", "its address in total"),
    (IN_PLACE, "tl.sigmoid(1.702 * x), mask=mask)", "tl.sigmoid(1.702 * x), mask=at < 9)",
     "its address in total or its mask"),
    (IN_PLACE, "        total, total, n", "        total, x, n", "has not allocated"),
    (NORM_IN_PLACE, " and x.is_contiguous()", "", "asserts `x.is_contiguous"),
    (NORM_IN_PLACE, "x.dim() == 2 and", "x.dim() == 2 or x.dim() == 3 and", "asserts `x.is_con"),
    (NORM_IN_PLACE, "    summed = torch", "    x = x.t()\n    summed = torch", "asserts `x.is_con"),
    (NORM_IN_PLACE, "empty_like(x)", "empty_like(x, memory_format=torch.channels_last)",
     "asserts `x.is_con"),
    (OTHER_STRIDE, "x.contiguous()", "x.contiguous(memory_format=torch.channels_last)",
     "asserts `x.is_con"),
    (OTHER_STRIDE, "    x = x.contiguous()\n", "", "asserts `x.is_con"),
])
def test_writing_in_place_and_other_strides_are_refused_where_not_proved(
        source: str, old: str, new: str, why: str) -> None:
    assert old in source
    with pytest.raises(DoesNotApply, match=why):
        FusedLaunches().apply(source.replace(old, new))


def test_tensor_that_the_first_kernel_reads_and_the_second_one_writes_is_refused() -> None:
    source = IN_PLACE.replace("    total =", "    x = torch.zeros(9)\n    total =").replace(
        "def in_place(x, y)", "def in_place(y)").replace("total, total, n", "total, x, n")
    with pytest.raises(DoesNotApply, match="the first kernel reads x, which the second one writes"):
        FusedLaunches().apply(source)
