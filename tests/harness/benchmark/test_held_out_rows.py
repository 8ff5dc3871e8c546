"""Before a gain is kept, rows are checked whose values the benchmark does not measure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.benchmark.spec.command_target import Metric
from harness.benchmark.verdict import benchmark_verdict
from harness.call_trace.weights import Shape, Weights
from harness.verdict import HELD_OUT, Verdict
from tests.support.benchmarks import benchmark_case
from tests.support.benchmarks.benchmark_case import kernel

BENCH = """\
import csv, sys
import kernel

asked = dict(zip(sys.argv[1::2], sys.argv[2::2]))
sizes = [int(asked["--m"])] if asked else [64, 128, 256]
rows = [{"m": m, "err": kernel.err(m), "fwd_us": kernel.COST * m} for m in sizes]
with open("bench.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)
"""
EVEN = "\ndef err(m):\n    return m % 2\n"
ONLY_MEASURED = "\ndef err(m):\n    return int(m not in (64, 128, 256))\n"
ONLY_BELOW = "\ndef err(m):\n    return int(m > 256)\n"


def judge(root: Path, candidate: str, incumbent: str = "", **fields: Any) -> Verdict:
    """Judge a candidate of half the incumbent's cost."""
    return benchmark_case.judge(
        root, kernel(50.0, candidate), incumbent=kernel(100.0, incumbent),
        files={"bench.py": BENCH},
        wanted=benchmark_case.target(metrics=(Metric(name="fwd_us"),), **{
            "row_command": "python bench.py --m {m}", **fields}))


def held_out(verdict: Verdict) -> tuple[list[str], list[str]]:
    assert verdict.valid and verdict.correct and (verdict.speedup or 0) > 1.9, verdict
    return [e.detail for e in verdict.evidence if e.kind == HELD_OUT], \
        [f.detail for f in verdict.audit if f.rule == HELD_OUT]


def test_verdict_names_the_rows_that_were_checked_and_not_timed(tmp_path: Path) -> None:
    verdict = judge(tmp_path, "")
    [evidence], findings = held_out(verdict)
    head, _, names = evidence.partition(": ")
    assert head == "correct on 6 rows that the benchmark does not have" and not findings
    values = sorted(int(name.removeprefix("m=")) for name in names.split("; "))
    assert any(64 < value < 128 for value in values) and any(value > 256 for value in values)
    assert not {64, 128, 256} & set(values)
    assert [row.config_class for row in verdict.rows] == ["m=64", "m=128", "m=256"]


@pytest.mark.parametrize("candidate", [ONLY_MEASURED, ONLY_BELOW], ids=["between", "beyond"])
def test_gain_that_is_wrong_between_or_beyond_the_rows_is_flagged(
        candidate: str, tmp_path: Path) -> None:
    _, [finding] = held_out(judge(tmp_path, candidate))
    assert finding.startswith("is wrong (row 1: err is ") and " on m=" in finding


def test_row_that_hangs_is_ended_by_a_limit_from_the_incumbents_time(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark's own limit is for whole runs, and may be an hour."""
    monkeypatch.setattr(benchmark_verdict, "LEAST_ROW_S", 0.5)
    _, [finding] = held_out(judge(
        tmp_path, "\ndef err(m):\n    while m not in (64, 128, 256):\n        pass\n    return 0\n",
        timeout_s=3600.0))
    assert finding.startswith("fails (ran past its limit of ")


def test_shape_that_a_program_calls_and_no_row_measures_is_checked_first(tmp_path: Path) -> None:
    weights = Weights(columns=("m",), sha256="", shapes=(
        Shape(cells=("64",), calls=10.0), Shape(cells=("100",), calls=9.0)))
    only_there = "\ndef err(m):\n    return int(m == 100)\n"
    evidence, [finding] = held_out(judge(tmp_path, only_there, weights=weights))
    assert "on m=100, a row that" in finding
    assert evidence == ["no rows other than the benchmark's could be checked"]


@pytest.mark.slow
@pytest.mark.parametrize(("candidate", "incumbent", "fields", "evidence"), [
    (ONLY_MEASURED, ONLY_MEASURED, {}, "no rows other than the benchmark's could be checked"),
    (EVEN, EVEN, {}, "rows that the benchmark does not have"),
    (ONLY_MEASURED, "", {"row_command": ""}, "target.row_command is not set"),
    (ONLY_MEASURED, "", {"row_command": "python bench.py --m {err}"}, "no column in target.row_")],
    ids=["as the incumbent fails", "where it passes", "no command", "no such column"])
def test_row_counts_only_where_the_incumbent_is_right(
        candidate: str, incumbent: str, fields: dict[str, Any], evidence: str,
        tmp_path: Path) -> None:
    [detail], findings = held_out(judge(tmp_path, candidate, incumbent, **fields))
    assert evidence in detail and not findings
