"""Shapes that no class has are checked; a failure counts unless the baseline fails too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.tasks.target import ConfigClass
from harness.verdict import HELD_OUT
from tests.support.kernels.c_case import FAST, QUICK, SLOW, judge, kernel, target

ONE_CLASS = target(classes=(ConfigClass(name="even", shape={"n": 8192}),))
LISTED = "for (int64_t i = 0; i < (n == 8192 ? n : n - 1); i++) out[i] = 2 * x[i];\n"
SMALL_STACK = ("if (n > 8192) *(volatile int *)0 = 1;\n"
               "for (int64_t i = 0; i < n; i++) out[i] = 2 * x[i];\n")

TWO_CLASSES = target(classes=(ConfigClass(name="few", shape={"n": 1000}),
                              ConfigClass(name="many", shape={"n": 8000})))
BETWEEN = "for (int64_t i = 0; i < n; i++) out[i] = 2 * x[i] + (n > 1000 && n < 8000);\n"
BEYOND = "for (int64_t i = 0; i < n; i++) out[i] = 2 * x[i] + (n < 1000 || n > 8000);\n"


@pytest.mark.slow
@pytest.mark.parametrize(("source", "incumbent", "detail"), [
    (kernel(SMALL_STACK), SLOW, "fails (crashed (SIGSEGV)) on n="),
    (kernel(SMALL_STACK), kernel(SMALL_STACK) + "/* before */\n", ""),
    (kernel(LISTED), kernel(LISTED) + "/* before */\n", ""),
], ids=["crashes elsewhere", "as the baseline crashes", "as the baseline is wrong"])
def test_failure_counts_only_where_the_baseline_is_right(source: str, incumbent: str, detail: str,
                                                tmp_path: Path) -> None:
    verdict = judge(tmp_path, source, incumbent=incumbent, task=ONE_CLASS,
                    plan=replace(QUICK, looks=(2,)))
    assert verdict.valid and verdict.correct, verdict
    details = [finding.detail for finding in verdict.audit if finding.rule == HELD_OUT]
    assert [text.startswith(detail) for text in details] == ([True] if detail else [])


@pytest.mark.parametrize(("source", "least", "most"), [
    pytest.param(BETWEEN, 1001, 7999, id="between"),
    pytest.param(BEYOND, 1, 16000, id="beyond", marks=pytest.mark.slow)])
def test_kernel_that_is_wrong_between_or_beyond_the_classes_is_flagged(
        source: str, least: int, most: int, tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(source), incumbent=SLOW, task=TWO_CLASSES,
                    plan=replace(QUICK, looks=(2,)))
    [detail] = [finding.detail for finding in verdict.audit if finding.rule == HELD_OUT]
    n = int(detail.partition("n=")[2].partition(",")[0])
    assert detail.startswith("is wrong on n=") and least <= n <= most and n not in (1000, 8000)


@pytest.mark.slow
def test_verdict_says_which_shapes_were_checked_and_not_timed(tmp_path: Path) -> None:
    verdict = judge(tmp_path, FAST, task=TWO_CLASSES, plan=replace(QUICK, looks=(2,)))
    [detail] = [entry.detail for entry in verdict.evidence if entry.kind == HELD_OUT]
    assert detail.startswith("correct on 4 shapes that the task does not list: n=")
    assert [row.config_class for row in verdict.rows] == ["few", "many"]
