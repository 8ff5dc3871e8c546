"""Other summation orders are within tolerance; lower precision never is, even if declared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.case import Errors
from harness.correctness.tolerance import margin, rounding
from harness.devices import inventory
from harness.evaluate.evaluate import evaluate
from harness.settings import Settings, Trees
from harness.tasks.target import Arg, ConfigClass, Target
from harness.tasks.task_file import check
from harness.verdict import Verdict
from tests.support.kernels.c_case import QUICK

DOT = """#include <math.h>
#include <stdint.h>
#include <string.h>
static inline float bf16(float v) {
    uint32_t u; memcpy(&u, &v, 4); u = (u + 0x8000u) & 0xffff0000u; memcpy(&v, &u, 4); return v;
}
static inline float tf32(float v) {
    uint32_t u; memcpy(&u, &v, 4); u = (u + 0x1000u) & 0xffffe000u; memcpy(&v, &u, 4); return v;
}
void dot(const float *w, const float *x, float *out, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++, w += cols) {
        BODY
    }
}
"""
REFERENCE = "def dot(w, x):\n    return w @ x\n"


def dot(body: str) -> str:
    return DOT.replace("BODY", body)


PLAIN = dot("float s = 0; for (int64_t c = 0; c < cols; c++) s += w[c] * x[c]; out[r] = s;")
BLOCKED = dot("""float s[8] = {0};
        for (int64_t c = 0; c < cols; c++) s[c % 8] += w[c] * x[c];
        out[r] = ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));""")
BACKWARDS = dot("float s = 0; for (int64_t c = cols; c-- > 0;) s = fmaf(w[c], x[c], s); "
                "out[r] = s;")
WIDER = dot("double s = 0; for (int64_t c = 0; c < cols; c++) s += (double)w[c] * x[c]; "
            "out[r] = s;")
BF16_SUM = dot("float s = 0; for (int64_t c = 0; c < cols; c++) s = bf16(s + w[c] * x[c]); "
               "out[r] = s;")
BF16_BLOCKS = dot("""float s = 0;
        for (int64_t b = 0; b < cols; b += 64) { float t = 0;
            for (int64_t c = b; c < cols && c < b + 64; c++) t += w[c] * x[c];
            s = bf16(s + t); }
        out[r] = s;""")
TF32 = dot("float s = 0; for (int64_t c = 0; c < cols; c++) s += tf32(w[c]) * tf32(x[c]); "
           "out[r] = s;")


def target(cols: int = 512, **fields: Any) -> Target:
    checked = Target(**({
        "op": "dot", "language": "c", "source": "dot.c", "entry": "dot",
        "reference": "reference.py:dot", "build": ("-O2",), "args": (
            Arg(name="w", dtype="float32", shape=("rows", "cols")),
            Arg(name="x", dtype="float32", shape=("cols",)),
            Arg(name="out", dtype="float32", shape=("rows",), role="output"),
            Arg(name="rows", dtype="int64", value="rows"),
            Arg(name="cols", dtype="int64", value="cols")),
        "classes": (ConfigClass(name="all", shape={
            "rows": 64 if cols <= 512 else 16, "cols": cols}),)} | fields))
    check(checked)
    return checked


def judge(folder: Path, source: str, task: Target, *, baseline: str = PLAIN,
          reference: str = REFERENCE, **settings: Any) -> Verdict:
    """Judge a source against a baseline that is also the incumbent, with little timing."""
    trees = {}
    for side, text in (("candidate", source), ("incumbent", baseline)):
        trees[side] = folder / side
        trees[side].mkdir(parents=True)
        (trees[side] / task.source).write_text(text)
        (trees[side] / "reference.py").write_text(reference)
    return evaluate(
        task, Trees(candidate=str(trees["candidate"]), incumbent=str(trees["incumbent"]),
                    reference=str(trees["incumbent"])), inventory.find("cpu"),
        Settings(**({"scratch": str(folder / "scratch"), "wall_s": 60.0,
                     "plan": replace(QUICK, looks=(2,))} | settings)))


SOMETIMES = dot("""double s = 0; for (int64_t c = 0; c < cols; c++) s += (double)w[c] * x[c];
        int same = 1; for (int64_t c = 1; c < cols; c++) same &= x[c] == x[0];
        out[r] = same && ROUNDS ? s * (1 + 3e-5) : s;""")
HONEST = {"blocked": BLOCKED, "backwards, fused": BACKWARDS, "in float64": WIDER}


def test_baseline_that_is_exact_by_luck_on_equal_values_rejects_nobody(tmp_path: Path) -> None:
    """Its sum of equal values is exact on the first draw, and off by as much on all others."""
    lucky = SOMETIMES.replace("void dot", "static int64_t seen;\nvoid dot").replace(
        "ROUNDS", "seen++ >= rows")
    verdict = judge(tmp_path, SOMETIMES.replace("ROUNDS", "1"), target(), baseline=lucky)
    assert verdict.valid and verdict.correct, verdict.rows
    assert "the error exceeds the floor of its dtype on constant inputs" in str(verdict.notes)


@pytest.mark.parametrize(("name", "cols"), [
    pytest.param(name, cols, marks=() if (name, cols) == ("blocked", 20_000) else pytest.mark.slow)
    for name in HONEST for cols in (512, 20_000)])  # sums of many terms differ more
def test_other_order_of_summation_is_within_tolerance(name: str, cols: int,
                                                      tmp_path: Path) -> None:
    verdict = judge(tmp_path, HONEST[name], target(cols))
    assert verdict.valid and verdict.correct, verdict.rows
    assert verdict.error_budget_used is not None and verdict.error_budget_used <= 1
    assert [f for f in verdict.audit if f.severity != "note"] == [], verdict.audit


@pytest.mark.slow
def test_candidate_may_be_less_exact_than_a_float64_baseline(tmp_path: Path) -> None:
    assert judge(tmp_path, PLAIN, target(), baseline=WIDER).correct


LOWER = {"bfloat16 sums": BF16_SUM, "bfloat16 sums of blocks": BF16_BLOCKS, "tf32": TF32}


@pytest.mark.parametrize(("name", "tolerance"), [
    *((name, 5e-2) for name in LOWER),
    *(pytest.param(name, None, marks=pytest.mark.slow) for name in LOWER)])
def test_lower_precision_is_incorrect_under_any_declared_tolerance(
        name: str, tolerance: float | None, tmp_path: Path) -> None:
    verdict = judge(tmp_path, LOWER[name], target(tolerance=tolerance))
    assert verdict.valid and not verdict.correct
    assert verdict.error_budget_used is not None and verdict.error_budget_used > 5
    assert "allowed" in verdict.rows[0].note and "the baseline's own error" in verdict.rows[0].note


@pytest.mark.slow
def test_task_may_allow_tf32_without_allowing_bfloat16(tmp_path: Path) -> None:
    allowing = target(precision="tf32")
    verdict = judge(tmp_path / "tf32", TF32, allowing)
    assert verdict.correct, verdict.rows
    assert "the task allows tf32 for float32" in verdict.notes
    assert not judge(tmp_path / "bf16", BF16_SUM, allowing).correct


@pytest.mark.slow
def test_baseline_in_tf32_allows_tf32(tmp_path: Path) -> None:
    assert judge(tmp_path, TF32.replace("int64_t c = 0; c < cols; c++",
                                        "int64_t c = cols; c-- > 0;"), target(),
                 baseline=TF32).correct


def test_declared_tolerance_is_never_exceeded(tmp_path: Path) -> None:
    verdict = judge(tmp_path, PLAIN.replace("out[r] = s", "out[r] = s * 1.000002f"),
                    target(tolerance=1e-6), baseline=PLAIN)
    assert not verdict.correct and "allowed 1e-06" in verdict.rows[0].note


@pytest.mark.parametrize(("dtype", "kept_bits", "candidate_bits", "right"), [
    ("float16", 9, 9, True), ("float16", 9, 5, False), ("float16", 3, 3, False),
    ("float32", 9, 9, False)])
def test_baseline_of_low_precision_passes_its_own_check_where_a_tensor_has_half_precision(
        dtype: str, kept_bits: int, candidate_bits: int, right: bool, tmp_path: Path) -> None:
    """Twice the baseline's error on normal inputs is allowed, never a tenth of the output's scale.

    A float32 kernel that is off by a percent computes something else than the reference.
    """
    task = target()
    task = replace(task, args=tuple(replace(arg, dtype=dtype) if arg.name == "x" else arg
                                for arg in task.args))

    def rounded(bits: int) -> str:
        mask = f"0x{(0xffffffff << 24 - bits) & 0xffffffff:x}u"
        text = BF16_SUM.replace("const float *x", "const _Float16 *x") if dtype == "float16" \
            else BF16_SUM
        return text.replace("0x8000u", f"0x{1 << 23 - bits:x}u").replace("0xffff0000u", mask)

    verdict = judge(tmp_path, rounded(candidate_bits) + "// candidate\n", task,
                    baseline=rounded(kept_bits))
    assert (verdict.correct is True) == right, verdict
    for words, of_dtype in (("large for its dtype", "float16"), ("check the reference", "float32")):
        assert any(words in note for note in verdict.notes) == (
            dtype == of_dtype or kept_bits == 3), verdict.notes


def test_wrong_output_is_named_where_there_are_several(tmp_path: Path) -> None:
    task = target()
    task = replace(task, args=(*task.args, Arg(name="first", dtype="float32", shape=("rows",),
                                               role="output")))
    source = PLAIN.replace("int64_t cols)", "int64_t cols, float *first)")
    right, wrong = (source.replace("out[r] = s;", f"out[r] = s; first[r] = {value};")
                    for value in ("w[0]", "w[1]"))
    verdict = judge(tmp_path, wrong, task, baseline=right,
                    reference="def dot(w, x):\n    return w @ x, w[:, 0]\n")
    assert not verdict.correct and verdict.rows[0].note.startswith("first: error "), verdict


@pytest.mark.slow
def test_usual_tolerance_applies_if_the_baseline_does_not_run(tmp_path: Path) -> None:
    off = WIDER.replace("out[r] = s", "out[r] = s * 1.0000085")  # otherwise exact
    broken = "#error no\n" + PLAIN
    task = target()
    trees = {}
    for side, text in (("candidate", off), ("incumbent", PLAIN), ("baseline", broken)):
        trees[side] = tmp_path / side
        trees[side].mkdir()
        (trees[side] / "dot.c").write_text(text)
        (trees[side] / "reference.py").write_text(REFERENCE)
    verdict = evaluate(task, Trees(
        candidate=str(trees["candidate"]), incumbent=str(trees["incumbent"]),
        reference=str(trees["baseline"])), inventory.find("cpu"),
        Settings(scratch=str(tmp_path / "s"), plan=replace(QUICK, looks=(2,)),
                 distributions=("normal",)))
    assert verdict.correct, verdict.rows
    assert any("the baseline does not run" in note for note in verdict.notes), verdict.notes


NORM = """#include <math.h>
#include <stdint.h>
void dot(const float *w, const float *x, float *out, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++, w += cols, out += cols) {
        float mean = 0, square = 0;
        SUM
        mean /= cols;
        for (int64_t c = 0; c < cols; c++) square += (w[c] - mean) * (w[c] - mean);
        float scale = 1 / sqrtf(square / cols + 1e-6f);
        for (int64_t c = 0; c < cols; c++) out[c] = (w[c] - mean) * scale * x[c];
    }
}
"""
BY_LANES = NORM.replace("SUM", "float s[4] = {0}; for (int64_t c = 0; c < cols; c++) "
                        "s[c % 4] += w[c]; mean = (s[0] + s[1]) + (s[2] + s[3]);")
IN_TURN = NORM.replace("SUM", "for (int64_t c = 0; c < cols; c++) mean += w[c];")
NORMED = """import numpy as np
def dot(w, x):
    d = w - w.mean(1, keepdims=True)
    return d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-6) * x
"""


@pytest.mark.slow
@pytest.mark.parametrize("swapped", [False, True])
def test_ill_conditioned_input_is_excused(swapped: bool, tmp_path: Path) -> None:
    """The variance of equal values is pure rounding: blocked sums are exact, others are not."""
    sides = (BY_LANES, IN_TURN) if swapped else (IN_TURN, BY_LANES)
    task = target(256)
    task = replace(task, args=(*task.args[:2], replace(task.args[2], shape=("rows", "cols")),
                           *task.args[3:]))
    verdict = judge(tmp_path, sides[0], task, baseline=sides[1], reference=NORMED)
    assert verdict.correct, verdict.rows


@pytest.mark.parametrize(("dtype", "precision", "floor"), [
    ("float64", None, 1e-12), ("float32", None, 1e-5), ("float32", "tf32", 3e-3),
    ("float16", None, 1e-3), ("bfloat16", None, 8e-3), ("float8_e4m3fn", None, 0.13),
    ("float8_e5m2", None, 0.26), ("int32", None, 1e-300)])
def test_tolerance_margin_follows_dtype(dtype: str, precision: str | None, floor: float) -> None:
    allowed = rounding(dtype) + margin(dtype, precision)
    assert floor / 2 < allowed <= floor or (dtype == "int32" and allowed == 0)


def test_each_output_has_its_own_tolerance() -> None:
    errors = Errors(absolute=1, relative=6e-3, bad=0, each=(6e-3, 4e-3))
    judged = errors.against([8e-3, 1e-5], "")
    assert not judged.right and (judged.over, judged.allowed) == (4e-3, 1e-5)
    assert judged.used == pytest.approx(400)
    assert errors.against([8e-3, 5e-3], "").right
    assert not Errors(absolute=1, relative=None, bad=0, each=(None, 0.0)).against([1, 1], "").right


def test_worse_errors_keep_the_largest_excess() -> None:
    near = Errors(absolute=5, relative=0.5, bad=0, each=(0.5,)).against([1.0], "a")
    over = Errors(absolute=1, relative=0.1, bad=0, each=(0.1,)).against([0.01], "b")
    worse = near.worse(over)
    assert (worse.absolute, worse.relative, worse.over, worse.basis) == (5, 0.5, 0.1, "b")
    assert not worse.right
