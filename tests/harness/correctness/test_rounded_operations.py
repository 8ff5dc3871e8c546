"""A mean that is off by one rounding is right on constant inputs too; one that is far off is not.

PyTorch's mean of equal values is exact, that of other orders of summation is not. Layer norm
multiplies the difference by 316, and a product with equal weights adds it up.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.devices import inventory
from harness.evaluate.evaluate import evaluate
from harness.settings import Settings, Trees
from harness.tasks.target import Arg, ConfigClass
from harness.verdict import Verdict
from tests.support.kernels import kernel_case
from tests.support.kernels.c_case import QUICK

REFERENCE = """import torch
from torch.nn import functional as F

def project(x, w):
    return x + F.layer_norm(x, x.shape[-1:]) @ w / 16
"""
CANDIDATE = """import torch

def project(x, w):
    mean = x.mean(-1, keepdim=True)
    mean = MEAN
    away = x - mean
    return x + away * torch.rsqrt((away * away).mean(-1, keepdim=True) + 1e-5) @ w / 16
"""
TARGET = kernel_case.target(
    language="python", op="project", entry="project", reference="reference.py:project", flops=None,
    args=(Arg(name="x", dtype="float32", shape=("rows", "cols")),
          Arg(name="w", dtype="float32", shape=("cols", "cols"))),
    returns=True, return_dtypes=("float32",),
    classes=(ConfigClass(name="odd", shape={"rows": 40, "cols": 192}),))


@pytest.mark.parametrize(("mean", "is_right"), [
    ("torch.nextafter(mean, mean.new_full((), 1e30))", True),
    ("mean * (1 + 2**-12) if bool((x == x[:, :1]).all()) else mean", False)])
def test_mean_may_be_off_by_a_rounding_on_constant_inputs(mean: str, is_right: bool,
                                                          tmp_path: Path) -> None:
    verdict = _judge(tmp_path, CANDIDATE.replace("MEAN", mean))
    assert verdict.valid and verdict.correct == is_right, (verdict.rows, verdict.notes)


def _judge(folder: Path, source: str) -> Verdict:
    base = kernel_case.tree(folder / "base", REFERENCE, REFERENCE)
    return evaluate(
        TARGET, Trees(candidate=kernel_case.tree(folder / "candidate", source, REFERENCE),
                      incumbent=base, reference=base), inventory.find("cpu"),
        Settings(scratch=str(folder / "scratch"), plan=QUICK, static_audit=False,
                 distributions=("normal", "constant")))
