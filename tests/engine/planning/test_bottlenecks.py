"""Bottlenecks compare a class with the roofline and with similar classes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from engine.history import time_growth
from engine.planning import bottlenecks
from harness.compile.c_compiler import Remark
from harness.roofline.ceilings import Level
from harness.roofline.roofline import Roofline
from harness.tasks.target import ConfigClass
from harness.verdict import Row
from tests.support.kernels.c_case import target


@pytest.mark.parametrize(("times", "limiter", "advice"), [
    ((10.0, 10.4), "fixed cost", "hardly depends on context"),
    ((10.0, 78.0), "cost per context", "grows with context"),
    ((10.0, 300.0), "growth beyond context", "block over context"),
])
def test_growth_from_the_nearest_class_names_the_cost(times: tuple[float, float], limiter: str,
                                                      advice: str) -> None:
    rows = [benchmark_row(us, f"mtp=8 context={size}")
            for size, us in zip((256, 2048), times, strict=True)]
    growth = time_growth.of_class(rows, rows[1])
    assert growth.limiter == limiter and advice in growth.advice
    assert f"at context=2048, {times[0]:.1f} us at context=256" in growth.evidence


def test_class_without_a_similar_one_has_an_unknown_cause() -> None:
    rows = [benchmark_row(5.0, "kind=a"), benchmark_row(9.0, "kind=b"),
            benchmark_row(5.0, "mtp=1 n=2"), Row(config_class="n=8", correct=True, latency_us=5.0)]
    assert {time_growth.of_class(rows, row) for row in rows} == {time_growth.unknown()}


def test_class_is_compared_only_along_one_column_of_positive_values() -> None:
    rows = [benchmark_row(us, name) for name, us in (
        ("mtp=4 n=64 skew=0", 10.0), ("mtp=4 n=128 skew=0", 20.0), ("mtp=4 n=128 skew=1", 90.0))]
    assert "20.0 us at n=128" in time_growth.of_class(rows, rows[0]).evidence
    assert time_growth.of_class(rows, rows[2]) == time_growth.unknown()


def test_growth_compares_only_classes_whose_rows_agree_in_every_other_column() -> None:
    """Longer contexts were measured with fewer heads: their times say nothing of the context."""
    short, fewer, long = (
        benchmark_row(10.0, "context=256 heads=8", "context=256 heads=4"),
        benchmark_row(11.0, "context=2048 heads=1", "context=2048 heads=4"),
        benchmark_row(80.0, "context=2048 heads=4", "context=2048 heads=8"))
    assert time_growth.of_class([short, fewer], fewer) == time_growth.unknown()
    assert time_growth.of_class([short, fewer, long], long).limiter == "cost per context"


def benchmark_row(us: float, *shapes: str) -> Row:
    return Row(config_class=shapes[0], correct=True, latency_us=us, shapes=shapes)


def test_planner_measures_headroom_against_the_roofline() -> None:
    """Old verdicts state a percentage of the floor; here it is computed from the roofline."""
    task = target(classes=(ConfigClass(name="c", shape={"n": 1 << 20}),), bytes=134_000_000)
    old = Row(config_class="c", correct=True, latency_us=34.0, pct_of_roofline=42.0)
    reach = Roofline(gflops=740e3, levels=(Level(math.inf, 4240.0),))
    [lead] = bottlenecks.of_rows(task, (), [old], reach)
    assert lead.bottleneck.limiter == "memory"
    assert lead.bottleneck.value == pytest.approx(93, abs=0.5)
    assert lead.bottleneck.detail == "34.0 us against a roofline of 31.6 us at 4240 GB/s"
    slow = replace(old, latency_us=2.23e4)
    [far] = bottlenecks.of_rows(task, (), [slow], reach)
    assert far.bottleneck.detail == "22.3 ms against a roofline of 31.6 us at 4240 GB/s, of its " \
        "bytes alone: the task states no flops"
    [known] = bottlenecks.of_rows(replace(task, flops=1e6), (), [slow], reach)
    assert "flops" not in known.bottleneck.detail
    [unknown] = bottlenecks.of_rows(task, (), [old], None)
    assert unknown.bottleneck.limiter == "latency" and unknown.bottleneck.value == 42.0


@pytest.mark.parametrize(("us", "advice"), [(34.0, "move less data"), (600.0, "find what takes")])
def test_advice_far_from_the_roofline_is_not_to_move_fewer_bytes(us: float, advice: str) -> None:
    task = target(classes=(ConfigClass(name="c", shape={"n": 1 << 20}),), bytes=134_000_000)
    reach = Roofline(gflops=740e3, levels=(Level(math.inf, 4240.0),))
    row = Row(config_class="c", correct=True, latency_us=us)
    [lead] = bottlenecks.of_rows(task, (), [row], reach)
    assert (lead.bottleneck.limiter, advice in lead.bottleneck.advice) == ("memory", True)


def test_loops_of_functions_that_the_entry_does_not_need_are_no_bottlenecks() -> None:
    source = "static int helper(int n) {\n  return n;\n}\n" \
        "void other(int n) {\n  for (;;) n--;\n}\nvoid entry(int n) {\n  for (;;) helper(n);\n}\n"
    remarks = [Remark(line=line, vector_bytes=0) for line in (2, 5, 8)]
    found = bottlenecks.of_c(target(entry="entry"), source, (), (), None, remarks)
    assert [each.bottleneck.detail.split(":")[0] for each in found] == ["line 2", "line 8"]
