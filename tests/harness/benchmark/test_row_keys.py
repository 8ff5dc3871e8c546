"""Measured columns never identify rows, unless the manifest names them."""

from __future__ import annotations

import math

import pytest

from harness.benchmark.runs import result_table, row_keys, run_pairs
from harness.benchmark.runs.result_table import BenchmarkFault, ResultTable, TableReading
from harness.benchmark.runs.run_pairs import BrokenIncumbent, RunPair
from harness.benchmark.spec.command_target import CommandTarget, Metric
from harness.benchmark.spec.metric_units import RowCost
from tests.support.benchmarks.benchmark_case import TARGET

US_TARGET = CommandTarget(op="x", command="b", csv="b.csv", check=TARGET.check,
                          metrics=(Metric(name="us"),))


def named(*configs: str) -> CommandTarget:
    return CommandTarget(op="x", command="b", csv="b.csv", check=TARGET.check,
                         metrics=(Metric(name="us"),), configs=configs)


def read(head: str, *lines: str, target: CommandTarget = US_TARGET) -> TableReading:
    made = ResultTable(columns=tuple(head.split(",")),
                       rows=tuple(tuple(line.split(",")) for line in lines))
    return result_table.judge_table(made, target, RowCost(target), csv="b.csv")


def pairs(head: str, incumbent: tuple[str, ...], candidate: tuple[str, ...],
          target: CommandTarget = US_TARGET) -> list[RunPair]:
    return [RunPair(incumbent=read(head, *incumbent, target=target),
                    candidate=read(head, *candidate, target=target))] * 3


@pytest.mark.parametrize("column", ["gbps", "GB/s", "tflops", "bw_GB_s", "rows_per_s", "ref_ms",
                                    "tokens/s", "ref_time_s"])
def test_measured_columns_are_not_config_columns(column: str) -> None:
    series = run_pairs.match_pairs(US_TARGET, RowCost(US_TARGET), pairs(
        f"m,{column},err,us", ("1,10,0,8", "2,10,0,16"), ("1,20,0,4", "2,20,0,8")))
    assert series.config == row_keys.ConfigColumns(columns=("m",))
    assert series.overall == pytest.approx((math.log(2),) * 3)


def test_missing_measured_column_is_not_a_fault() -> None:
    pair = RunPair(incumbent=read("m,gbps,err,us", "1,10,0,8"), candidate=read("m,err,us", "1,0,4"))
    assert run_pairs.match_pairs(US_TARGET, RowCost(US_TARGET), [pair]).config.columns == ("m",)


def test_named_column_is_a_config_column() -> None:
    target = named("budget_ms")
    lines = ("1,5,0,8", "1,9,0,16")
    series = run_pairs.match_pairs(
        target, RowCost(target), pairs("m,budget_ms,err,us", lines, lines, target)
    )
    assert [row_class.name for row_class in series.classes] == ["budget_ms=5", "budget_ms=9"]
    with pytest.raises(BenchmarkFault, match="missing: m=1 budget_ms=9; new: m=1 budget_ms=7"):
        run_pairs.match_pairs(target, RowCost(target), pairs(
            "m,budget_ms,err,us", lines, (lines[0], "1,7,0,16"), target))


def test_dimension_named_s_is_a_config_column() -> None:
    lines = ("1,3,0,8", "1,5,0,16")
    series = run_pairs.match_pairs(
        US_TARGET, RowCost(US_TARGET), pairs("filter_r,filter_s,err,us", lines, lines)
    )
    assert [row_class.name for row_class in series.classes] == ["filter_s=3", "filter_s=5"]


def test_equal_rows_error_names_target_configs() -> None:
    lines = ("1,5,0,8", "1,9,0,16")
    with pytest.raises(BrokenIncumbent) as caught:
        run_pairs.match_pairs(
            US_TARGET, RowCost(US_TARGET), pairs("m,budget_ms,err,us", lines, lines)
        )
    assert "rows 1 and 2 have the same configuration: m=1" in caught.value.what
    assert caught.value.fix.endswith("or name an existing one in target.configs")
