"""`performance_target` and `primary_metric` of a benchmark: which columns goal and score use."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.manifest import goal
from engine.manifest.benchmark_target import command_target
from engine.manifest.load import parse
from engine.manifest.rules import ignored_fields
from engine.manifest.schema import Manifest
from harness.benchmark.spec.command_target import CommandTarget, Metric
from harness.formats import yaml_document
from harness.verdict import Cost, Row, Verdict
from tests.support.benchmarks import benchmark_case
from tests.support.dashboards import samples


def target(*names: str, **fields: Any) -> CommandTarget:
    return benchmark_case.target(metrics=tuple(Metric(name=name) for name in names), **fields)


def verdict(*costs: float, speedup: float = 2.0, low: float = 1.9, **named: float) -> Verdict:
    """Return a verdict with one row per cost; `named` are the costs of each metric."""
    rows = tuple(Row(config_class=str(at), correct=True, latency_us=cost)
                 for at, cost in enumerate(costs))
    return samples.verdict(
        speedup=speedup, speedup_low=low, latency_us=math.prod(costs) ** (1 / len(costs)),
        rows=rows, costs=tuple(Cost(metric=name, value=cost, unit="us")
                               for name, cost in named.items()))


@pytest.mark.parametrize(("text", "task", "best", "words"), [
    ("> 500 TFLOPS", target("TFLOPS"), verdict(1000.0, 2500.0), "at least 6.008e+05 GFLOP/s"),
    ("> 700 TFLOPS", target("TFLOPS"), verdict(1000.0, 2500.0), ""),
    ("1.2 TB/s", target("gbps"), verdict(700.0), "at least 1357 GB/s"),
    ("1.2 TB/s", target("gbps"), verdict(900.0), ""),
    (">900 GFLOPS", target("fwd_TFLOPS", "bwd_TFLOPS"), verdict(2e6), "at least 950 GFLOP/s"),
    (">1 TFLOPS", target("fwd_TFLOPS", "bwd_TFLOPS"), verdict(2e6), ""),
    ("> 1.8 TFLOPS", target("TFLOPS", scoring="total"), verdict(5e5), "at least 1900 GFLOP/s"),
    ("11 us", target("fwd_us", "bwd_us"), verdict(10.0), "at most 10.53 us"),
    ("11 us", target("TFLOPS"), verdict(10.0), ""),
    ("500 TFLOPS", target("us", "TFLOPS"), verdict(9.0, us=9.0, TFLOPS=1800.0),
     "at least 5.278e+05 GFLOP/s"),
    ("500 TFLOPS", target("us", "TFLOPS"), verdict(9.0, us=9.0, TFLOPS=2000.0), ""),
    ("500 TFLOPS", target("us", "TFLOPS"), verdict(9.0), ""),
    ("9.5 us", target("us", "TFLOPS"), verdict(90.0, us=9.0, TFLOPS=1.0), "at most 9.474 us"),
    ("500 TFLOPS", target("us"), verdict(9.0), ""),
    ("60% of peak", target("TFLOPS"), verdict(1.0), ""),
])
def test_absolute_goal_uses_metrics_of_its_unit(text: str, task: CommandTarget,
                                                best: Verdict, words: str) -> None:
    wanted = goal.parse_goal(text)
    assert wanted is not None
    assert goal.reached_by(wanted, best, task) == words


def manifest(**fields: Any) -> Manifest:
    spec = {**benchmark_case.MANIFEST["target"],
            "metrics": fields.pop("metrics", ["fwd_us", "bwd_us"])}
    return parse(yaml_document.dump({**benchmark_case.MANIFEST, "target": spec, **fields}), "m")


@pytest.mark.parametrize(("fields", "expected"), [
    ({"performance_target": "60% of peak"}, ("performance_target",)),
    ({"performance_target": "> 500 TFLOPS"}, ("performance_target",)),
    ({"performance_target": "> 500 TFLOPS", "metrics": ["us", "TFLOPS"]}, ()),
    ({"performance_target": "850 us"}, ()),
    ({"performance_target": "850 us", "metrics": ["TFLOPS"]}, ("performance_target",)),
    ({"performance_target": "1.5x"}, ()),
    ({"primary_metric": "fwd_us"}, ()),
    ({"primary_metric": "bwd_us, fwd_us"}, ()),
    ({"primary_metric": "Forward"}, ("primary_metric",)),
    ({"primary_metric": "fwd_us, other"}, ("primary_metric",)),
    ({"target_shapes": [{"m": 64}]}, ("target_shapes",)),
    ({"target_shapes": [{"m": 64}], "representative_shapes": [{"m": 64}],
      "quick_command": "python bench.py --quick"}, ()),
])
def test_ignored_fields_of_a_benchmark_are_listed(fields: dict[str, Any],
                                                  expected: tuple[str, ...]) -> None:
    assert ignored_fields(manifest(**fields)) == expected


def test_primary_metric_of_a_kernel_is_ignored() -> None:
    assert ignored_fields(Manifest(target_op="x", primary_metric="TFLOPS")) == ("primary_metric",)


def test_only_primary_metrics_enter_the_score(tmp_path: Path) -> None:
    wanted = replace(command_target(manifest(primary_metric="fwd_us")), timeout_s=60.0)
    assert [metric.weight for metric in wanted.metrics] == [1.0, 0.0]
    more = "\n\ndef spoil(rows):\n    for row in rows:\n" \
           "        row['bwd_us'] = float(row['bwd_us']) * 3\n    return rows\n"
    found = benchmark_case.judge(tmp_path, benchmark_case.kernel(50.0, more), wanted=wanted)
    assert 1.9 < (found.speedup or 0.0) < 2.1, found
    assert found.notes[0] == "latency_us is fwd_us, as the benchmark reports it"
    details = [entry.detail for entry in found.evidence if entry.kind == "metric"]
    assert [line.split(" ", 1)[1] for line in details] == [
        "us by fwd_us", "us by bwd_us, not scored"]
    assert [(cost.metric, cost.scored) for cost in found.costs] == [
        ("fwd_us", True), ("bwd_us", False)]
    assert round(found.costs[1].value / (found.latency_us or 1.0), 1) == 6.0
    assert "bwd_us is " in found.rows[0].note and "% worse" in found.rows[0].note
