"""Failures on shapes that the task does not list are flagged unless the baseline fails too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.target import ConfigClass
from tests.support.c_case import FAST, QUICK, SLOW, judge, kernel, target

ONE_CLASS = target(classes=(ConfigClass(name="even", shape={"n": 8192}),))
LISTED = "for (int64_t i = 0; i < (n == 8192 ? n : n - 1); i++) out[i] = 2 * x[i];\n"
SMALL_STACK = ("if (n > 8192) *(volatile int *)0 = 1;\n"
               "for (int64_t i = 0; i < n; i++) out[i] = 2 * x[i];\n")


@pytest.mark.parametrize(("source", "incumbent", "detail"), [
    (FAST, SLOW, ""),
    (kernel(LISTED), SLOW, "is wrong on n="),
    (kernel(SMALL_STACK), SLOW, "fails (crashed (SIGSEGV)) on n="),
    (kernel(SMALL_STACK), kernel(SMALL_STACK) + "/* before */\n", ""),
    (kernel(LISTED), kernel(LISTED) + "/* before */\n", ""),
], ids=["right everywhere", "wrong elsewhere", "crashes elsewhere", "as the baseline crashes",
        "as the baseline is wrong"])
def test_failure_counts_only_where_the_baseline_is_right(source: str, incumbent: str, detail: str,
                                                tmp_path: Path) -> None:
    verdict = judge(tmp_path, source, incumbent=incumbent, task=ONE_CLASS,
                    plan=replace(QUICK, looks=(2,)))
    assert verdict.valid and verdict.correct, verdict
    details = [finding.detail for finding in verdict.audit if finding.rule == "over-fit"]
    assert [text.startswith(detail) for text in details] == ([True] if detail else [])
