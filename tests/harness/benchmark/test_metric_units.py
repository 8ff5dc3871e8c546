"""Columns become costs: units, directions, check rules, and what a target must declare."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from harness.benchmark.spec import table_rules
from harness.benchmark.spec.command_target import CheckColumn, Metric
from harness.benchmark.spec.metric_units import RowCost, resolve, unit_in
from harness.benchmark.spec.table_rules import check_in
from harness.benchmark.spec.validate import faults
from harness.benchmark.verdict import benchmark_rows
from harness.verdict import Cost
from tests.support.benchmarks.benchmark_case import TARGET, target

UNITS = [
    ("us_flydsl_ps", "us"), ("fwd_us", "us"), ("Forward TFLOPS", "TFLOPS"), ("time_s", "s"),
    ("latency (ms)", "ms"), ("bw_gbps", "gbps"), ("bandwidth GB/s", "GB/s"), ("p50 µs", "µs"),
    ("s", ""), ("s_total", ""), ("class", ""), ("speed", ""), ("us_per_tflops", "tflops"),
]


@pytest.mark.parametrize(("name", "unit"), UNITS)
def test_unit_is_read_from_a_column_name(name: str, unit: str) -> None:
    assert unit_in(name) == unit


COSTS = [
    (Metric(name="fwd_us"), 2.0, 2.0), (Metric(name="t", unit="ms"), 2.0, 2000.0),
    (Metric(name="t", unit="ns"), 500.0, 0.5), (Metric(name="t_s"), 0.5, 5e5),
    (Metric(name="t", unit="μs"), 3.0, 3.0),
    (Metric(name="tflops"), 4.0, 250_000.0), (Metric(name="f", unit="GFLOP/s"), 4000.0, 250_000.0),
    (Metric(name="bw", unit="GB/s"), 1000.0, 1000.0), (Metric(name="bw", unit="TB/s"), 1.0, 1000.0),
    (Metric(name="q", unit="tokens/s"), 1000.0, 1000.0),
    (Metric(name="speed"), 10.0, 1e5),
    (Metric(name="loss", direction="lower"), 10.0, 10.0),
    (Metric(name="speed", unit="furlongs", direction="higher"), 10.0, 1e5),
]


@pytest.mark.parametrize(("metric", "value", "cost"), COSTS)
def test_values_become_costs_in_microseconds(metric: Metric, value: float,
                                             cost: float) -> None:
    assert resolve(metric).cost(value) == pytest.approx(cost)
    assert resolve(metric).cost(2 * value) == pytest.approx(
        cost / 2 if resolve(metric).is_rate else 2 * cost)


@pytest.mark.parametrize(("metric", "message"), [
    (Metric(name="t", unit="us", direction="higher"), "lower us is better, not higher"),
    (Metric(name="f", unit="TFLOPS", direction="lower"), "higher TFLOPS is better, not lower"),
    (Metric(name="f", unit="furlongs"), "the unit 'furlongs' does not say which direction")])
def test_contradicting_unit_and_direction_are_refused(metric: Metric, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(metric)


COMBINED = [
    ((Metric(name="fwd_us"), Metric(name="bwd_ms")), "auto", (10.0, 1.0), 1010.0),
    ((Metric(name="fwd_us"), Metric(name="bwd_us", weight=2.0)), "auto", (10.0, 5.0), 20.0),
    ((Metric(name="fwd TFLOPS"), Metric(name="bwd TFLOPS", weight=2.0)), "auto", (1.0, 2.0), 2e6),
    ((Metric(name="fwd_us"), Metric(name="bwd_us")), "geometric", (4.0, 9.0), 6.0),
    ((Metric(name="fwd_us"), Metric(name="GB/s")), "auto", (4.0, 1e6 / 9), 6.0),
]


@pytest.mark.parametrize(("metrics", "combine", "values", "cost"), COMBINED)
def test_metrics_of_one_unit_are_summed_others_averaged(
        metrics: tuple[Metric, ...], combine: Any, values: tuple[float, ...], cost: float) -> None:
    row_cost = RowCost(target(metrics=metrics, combine=combine))
    assert row_cost.combined(row_cost.costs(values)) == pytest.approx(cost)


def test_note_explains_the_latency() -> None:
    rates = RowCost(target(metrics=(Metric(name="fwd TFLOPS"), Metric(name="bwd TFLOPS",
                                                                      weight=2.0))))
    assert rates.note == ("latency_us is the time of 1 TFLOP at its fwd TFLOPS + 2 x the time of 1 "
                          "TFLOP at its bwd TFLOPS, as the benchmark reports it")
    score = RowCost(target(metrics=(Metric(name="throughput"),)))
    assert score.note == "latency_us is 1 / throughput, as the benchmark reports it"


@pytest.mark.parametrize(("names", "per"), [
    (("bw GB/s",), "GB"), (("gflops",), "TFLOP"), (("req/s",), "req"), (("fwd_us",), ""),
    (("throughput",), ""), (("GB/s", "us"), "")])
def test_time_of_one_unit_names_the_unit(names: tuple[str, ...], per: str) -> None:
    assert RowCost(target(metrics=tuple(Metric(name=name) for name in names))).per == per


@pytest.mark.parametrize(("cost", "words"), [
    (Cost(metric="bw GB/s", value=1000.0, unit="us per GB"), "1000 GB/s by bw GB/s"),
    (Cost(metric="throughput", value=2000.0, unit="us per throughput"), "500 by throughput"),
    (Cost(metric="fwd_us", value=12.5, unit="us", scored=False),
     "12.5 us by fwd_us, not scored")])
def test_evidence_shows_a_rate_as_a_rate(cost: Cost, words: str) -> None:
    assert [entry.detail for entry in benchmark_rows.cost_evidence([cost])] == [words]


RULES = [
    ("== 0", "0", True), ("== 0", "0.0", True), ("== 0", "1", False), ("== 0", "", False),
    ("== 0", "-0", True), ("= 0", "0", True), ("!= 0", "1", True), ("!= 0", "nan", False),
    ("<= 1e-3", "0.001", True), ("<= 1e-3", "0.0011", False), ("<= 1e-3", "nan", False),
    ("< 1", "inf", False), (">= 0.99", "0.995", True), ("> 1", "PASS", False),
    ("PASS", "pass", True), ("PASS", "FAIL", False), ("== PASS|OK", "ok", True),
    ("== 'PASS'", "PASS", True), ("", "passed", True), ("", "True", True), ("", "FAIL", False),
    ("", "0", False), ("", "1", False), ("!= FAIL", "PASS", True), ("!= FAIL", "fail", False),
]


@pytest.mark.parametrize(("text", "cell", "passes"), RULES)
def test_check_rule_passes_cells(text: str, cell: str,
                                 passes: bool) -> None:
    assert table_rules.parse(text).passes(cell) is passes


@pytest.mark.parametrize(("text", "check"), [
    ("err == 0", CheckColumn(column="err", rule="== 0")), ("ok", CheckColumn(column="ok")),
    ("err_flydsl_ps<=1e-3", CheckColumn(column="err_flydsl_ps", rule="<=1e-3")),
    ("Check == PASS|OK", CheckColumn(column="Check", rule="== PASS|OK")),
    ("max err < 2", CheckColumn(column="max err", rule="< 2"))])
def test_check_is_parsed_from_one_line(text: str, check: CheckColumn) -> None:
    assert check_in(text) == check


BAD_TARGETS = [
    ({"csv": ""}, ("csv",), "is not a file inside the project"),
    ({"csv": "/tmp/x.csv"}, ("csv",), "is not a file inside the project"),
    ({"csv": "../x.csv"}, ("csv",), "is not a file inside the project"),
    ({"command": " "}, ("command",), "the command runs nothing"),
    ({"quick_command": "A=1"}, ("quick_command",), "the command runs nothing"),
    ({"quick_command": "sh 'a"}, ("quick_command",), "not well quoted"),
    ({"metrics": ()}, ("metrics",), "no metric is named"),
    ({"metrics": (Metric(name="us"), Metric(name="us"))}, ("metrics", 1), "is declared twice"),
    ({"check": CheckColumn(column="fwd_us", rule="<= 1000")}, ("check",),
     "'fwd_us' is a metric, which does not tell whether a result is correct"),
    ({"metrics": (Metric(name="us", weight=0.0),)}, ("metrics", 0, "weight"), "not all 0"),
    ({"metrics": (Metric(name="us", unit="parsecs"),)}, ("metrics", 0), "does not say which"),
    ({"check": CheckColumn(column="err", rule="<= many")}, ("check",), "needs a number"),
    ({"check": CheckColumn(column="err", rule="==")}, ("check",), "has no value to compare with"),
    ({"check": CheckColumn(column="err", rule="<= nan")}, ("check",), "compares with NaN"),
    ({"configs": ("fwd_us",)}, ("configs", 0), "is a metric or the check"),
    ({"ignore": ("err",)}, ("ignore", 0), "is a metric or the check"),
    ({"combine": "step", "metrics": (Metric(name="us"), Metric(name="GB/s"))}, ("combine",),
     "step needs metrics that are all times"),
    ({"timeout_s": math.inf}, ("timeout_s",), "above 0"),
]


@pytest.mark.parametrize(("fields", "key", "message"), BAD_TARGETS)
def test_invalid_target_is_refused(fields: dict[str, Any], key: tuple[str | int, ...],
                                   message: str) -> None:
    fault = next(iter(faults(replace(TARGET, **fields))))
    assert fault[0] == key and message in fault[1]
