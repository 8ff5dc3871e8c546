"""A task whose reference is the baseline itself, and arguments that are constants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.devices import inventory
from harness.evaluate.evaluate import evaluate
from harness.settings import Settings, Trees
from harness.tasks.target import Arg, ConfigClass, Target
from harness.tasks.task_file import BadField, check
from harness.verdict import Verdict
from tests.support.programs import shared_zygotes

SOURCE = """\
import torch


class Ops:
    @staticmethod
    def scale(x, mask, out, shape, dtype, mode, keep):
        assert shape == (3, x.shape[1]) and dtype is torch.float16 and mode == "up" and keep is None
        out.copy_(torch.where(mask, 2 * x, x))
        return out.sum(1)
"""
TARGET = Target(
    op="scale", language="python", source="ops.py", entry="Ops.scale", reference="baseline",
    returns=True, args=(
        Arg(name="x", dtype="float32", shape=("rows", "cols")),
        Arg(name="mask", dtype="bool", shape=("rows", "cols")),
        Arg(name="out", dtype="float32", shape=("rows", "cols"), role="output"),
        Arg(name="shape", dtype="tuple", literal=(3, "cols")),
        Arg(name="dtype", dtype="dtype", literal="float16"),
        Arg(name="mode", dtype="str", literal="up"), Arg(name="keep", dtype="none")),
    classes=(ConfigClass(name="small", shape={"rows": 8, "cols": 16}),))


def judge(tmp_path: Path, candidate: str) -> Verdict:
    for name, text in (("base", SOURCE), ("new", candidate)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ops.py").write_text(text)
    base, cpu = str(tmp_path / "base"), inventory.find("cpu")
    return evaluate(TARGET, Trees(candidate=str(tmp_path / "new"), incumbent=base, reference=base),
                    cpu, Settings(scratch=str(tmp_path / "scratch"), distributions=("normal",)),
                    zygote=shared_zygotes.zygote("python"))


def test_baseline_computes_what_is_expected_and_the_verdict_says_so(tmp_path: Path) -> None:
    verdict = judge(tmp_path, SOURCE)
    assert verdict.correct, verdict
    [flag] = [finding for finding in verdict.audit if finding.rule == "reference-baseline"]
    assert flag.severity == "flag" and flag.detail.startswith("the task has no reference")


def test_candidate_that_differs_from_the_baseline_is_wrong(tmp_path: Path) -> None:
    verdict = judge(tmp_path, SOURCE.replace("2 * x", "2.1 * x"))
    assert verdict.valid and not verdict.correct


C_SOURCE = """
void blend(int n, float share, const float *x, float *y, double *total) {
    total[0] = 0;
    for (int i = 0; i < n; i++) {
        y[i] = share * x[i] + (1 - share) * y[i];
        total[0] += y[i];
    }
}
"""
C_TARGET = Target(
    op="blend", language="c", source="blend.c", entry="blend", reference="baseline", args=(
        Arg(name="n", dtype="int32", value="n"), Arg(name="share", dtype="float32", value=0.25),
        Arg(name="x", dtype="float32", shape=("n",)),
        Arg(name="y", dtype="float32", shape=("n",), role="inout"),
        Arg(name="total", dtype="float64", shape=(1,), role="output")),
    classes=(ConfigClass(name="odd", shape={"n": 1001}),))


@pytest.mark.parametrize(("candidate", "is_correct"), [
    (C_SOURCE, True), (C_SOURCE.replace("(1 - share)", "share"), False),
    (C_SOURCE.replace("i < n", "i < n - 1"), False)])
def test_c_baseline_computes_what_is_expected(tmp_path: Path, candidate: str,
                                              is_correct: bool) -> None:
    for name, text in (("base", C_SOURCE), ("new", candidate)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "blend.c").write_text(text)
    base = str(tmp_path / "base")
    verdict = evaluate(
        C_TARGET, Trees(candidate=str(tmp_path / "new"), incumbent=base, reference=base),
        inventory.find("cpu"), Settings(scratch=str(tmp_path / "scratch")))
    assert (verdict.valid, verdict.correct) == (True, is_correct), verdict
    assert "reference-baseline" in {finding.rule for finding in verdict.audit}


@pytest.mark.parametrize("arg", [
    Arg(name="a", dtype="bool", literal="yes"), Arg(name="a", dtype="tuple", literal="x"),
    Arg(name="a", dtype="float32", shape=("rows",), literal=True),
    Arg(name="a", dtype="none", literal=1), Arg(name="a", dtype="str")])
def test_constant_that_does_not_fit_is_refused(arg: Arg) -> None:
    with pytest.raises(BadField):
        check(replace(TARGET, args=(*TARGET.args, arg)))
