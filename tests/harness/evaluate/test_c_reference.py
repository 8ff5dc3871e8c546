"""A task whose reference is a C function: the arguments in call order, every float as a double."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.devices import inventory
from harness.evaluate.evaluate import evaluate
from harness.runners.oracle_client import OracleError
from harness.settings import Settings, Trees
from harness.tasks.target import Arg, ConfigClass, Target
from harness.tasks.task_file import BadField, check
from harness.verdict import Verdict
from tests.support.programs import shared_zygotes

REFERENCE = """
#include <cmath>
extern "C" void blend(const double *x, double *y, const int *order, double *total, double share,
                      int n) {
    total[0] = 0;
    for (int i = 0; i < n; i++) {
        y[i] = share * x[order[i]] + (1 - share) * y[i];
        total[0] += std::sqrt(std::fabs(y[i]));
    }
}
"""
SOURCE = """
#include <math.h>
void blend(const float *x, float *y, const int *order, float *total, float share, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) {
        y[i] = share * x[order[i]] + (1 - share) * y[i];
        sum += sqrtf(fabsf(y[i]));
    }
    total[0] = sum;
}
"""
OF_TORCH = """
def blend(x, y, order, total, share, n):
    y.copy_(share * x[order.long()] + (1 - share) * y)
    total.copy_(y.abs().sqrt().sum())
"""
TARGET = Target(
    op="blend", language="c", source="blend.c", entry="blend", reference="reference.cpp:blend",
    args=(Arg(name="x", dtype="float32", shape=("n",)),
          Arg(name="y", dtype="float32", shape=("n",), role="inout"),
          Arg(name="order", dtype="int32", shape=("n",), low=0, high="n"),
          Arg(name="total", dtype="float32", shape=(1,), role="output"),
          Arg(name="share", dtype="float32", value=0.25),
          Arg(name="n", dtype="int32", value="n")),
    classes=(ConfigClass(name="odd", shape={"n": 10001}),))
TORCH = replace(TARGET, language="python", source="blend.py")


def judge(tmp_path: Path, target: Target, source: str, candidate: str,
          reference: str = REFERENCE) -> Verdict:
    for name, text in (("base", source), ("new", candidate)):
        (tmp_path / name).mkdir()
        (tmp_path / name / target.source).write_text(text)
        (tmp_path / name / "reference.cpp").write_text(reference)
    base = str(tmp_path / "base")
    return evaluate(
        target, Trees(candidate=str(tmp_path / "new"), incumbent=base, reference=base),
        inventory.find("cpu"), Settings(scratch=str(tmp_path / "scratch"),
                                        distributions=("normal",)),
        zygote=shared_zygotes.zygote(target.language))


@pytest.mark.parametrize(("target", "source"), [(TARGET, SOURCE), (TORCH, OF_TORCH)],
                         ids=["numpy", "torch"])
def test_c_reference_computes_in_double(tmp_path: Path, target: Target, source: str) -> None:
    """So the kernel's own rounding is its error, and no flag is needed."""
    verdict = judge(tmp_path, target, source, source)
    assert verdict.correct and 0 < (verdict.max_rel_err or 0) < 1e-4, verdict
    assert "reference-baseline" not in {finding.rule for finding in verdict.audit}


@pytest.mark.parametrize(("before", "after"), [
    ("(1 - share)", "share"), ("i < n", "i < n - 1"), ("float sum = 0", "float sum = 0.01f * n"),
    ("total[0] = sum", "total[0] = (float)(_Float16)(sum / 64) * 64")])
def test_candidate_that_differs_from_a_c_reference_is_wrong(
        tmp_path: Path, before: str, after: str) -> None:
    assert before in SOURCE
    verdict = judge(tmp_path, TARGET, SOURCE, SOURCE.replace(before, after))
    assert verdict.valid and not verdict.correct, verdict


def test_reference_that_does_not_compile_is_an_error_of_the_task(tmp_path: Path) -> None:
    with pytest.raises(OracleError, match=r"does not compile: .*share_.* was not declared"):
        judge(tmp_path, TARGET, SOURCE, SOURCE, REFERENCE.replace("y[i] = share", "y[i] = share_"))


def test_c_reference_is_frozen_and_takes_numbers_only() -> None:
    assert TARGET.frozen_files == ("reference.cpp",)
    for wrong in (replace(TORCH, returns=True), replace(TARGET, float64=False),
                  replace(TORCH, args=(*TORCH.args, Arg(name="flag", dtype="bool", literal=True)))):
        with pytest.raises(BadField, match="every float as a double"):
            check(wrong)
