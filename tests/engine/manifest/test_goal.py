"""`performance_target`: which words are a target, and when the best is sure to have reached it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.manifest import goal
from engine.manifest.rules import ignored_fields
from engine.manifest.schema import Manifest
from harness.tasks.target import Arg, ConfigClass, Target
from harness.verdict import Row, Verdict
from tests.support.dashboards import samples


@pytest.mark.parametrize(("text", "kind", "value"), [
    ("1.5x", "speedup", 1.5),
    (" >= 2 x ", "speedup", 2.0),
    ("1.25x faster", "speedup", 1.25),
    ("at least 3\u00d7", "speedup", 3.0),
    ("20%", "speedup", 1.2),
    ("20 % faster", "speedup", 1.2),
    ("+20%", "speedup", 1.2),
    ("20% less time", "speedup", 1.25),
    ("-20%", "speedup", 1.25),
    ("850 us", "latency", 850.0),
    ("<= 850us", "latency", 850.0),
    ("below 850 \u00b5s", "latency", 850.0),
    ("0.85 ms", "latency", 850.0),
    ("900ns", "latency", 0.9),
    (">500 TFLOPS", "compute", 500_000.0),
    ("900 GFLOP/s", "compute", 900.0),
    ("1.2 TB/s", "bandwidth", 1200.0),
    (">60% peak efficiency", "efficiency", 60.0),
    ("60% of peak", "efficiency", 60.0),
    ("75% of the roofline.", "efficiency", 75.0),
])
def test_checkable_goals_are_parsed(text: str, kind: str, value: float) -> None:
    found = goal.parse_goal(text)
    assert found is not None
    assert (found.kind, round(found.value, 9)) == (kind, value)
    assert ignored_fields(Manifest(target_op="x", performance_target=text)) == ()


@pytest.mark.parametrize("text", ["as fast as cuBLAS", "", "fast", "1x", "0.9x", "0%", "-100%",
                                  "120% of peak", "0 us", "1.5", "850 parsecs", "null", "x", "%"])
def test_other_goal_texts_are_ignored(text: str) -> None:
    assert goal.parse_goal(text) is None
    assert ignored_fields(Manifest(target_op="x", performance_target=text)) == (
        "performance_target",
    )


@given(st.text(max_size=30))
def test_no_goal_text_is_an_error(text: str) -> None:
    found = goal.parse_goal(text)
    assert found is None or found.value > 0


TARGET = Target(op="scale", language="c", source="s.c", entry="s", reference="r.py:r",
                args=(Arg(name="x", dtype="float32", shape=("n",)),),
                classes=(ConfigClass(name="a", shape={"n": 1000}),), flops="2*n")


def verdict(speedup: float, low: float, latency_us: float = 10.0,
            pct: float | None = 50.0) -> Verdict:
    row = Row(config_class="a", correct=True, latency_us=latency_us, pct_of_roofline=pct)
    return samples.verdict(speedup=speedup, speedup_low=low, latency_us=latency_us, rows=(row,))


@pytest.mark.parametrize(("text", "best", "words"), [
    ("1.5x", verdict(1.6, 1.52), "at least 1.52x"),
    ("1.5x", verdict(1.6, 1.49), ""),
    ("20%", verdict(1.3, 1.2), "at least 1.2x"),
    ("20%", verdict(1.3, 1.19), ""),
    ("11 us", verdict(2.0, 1.9, 10.0), "at most 10.53 us"),
    ("10.5 us", verdict(2.0, 1.9, 10.0), ""),
    ("40% of peak", verdict(2.0, 1.8, pct=50.0), "at least 45% of the roofline"),
    ("50% of peak", verdict(2.0, 1.8, pct=50.0), ""),
    ("40% of peak", verdict(2.0, 1.8, pct=None), ""),
    ("0.19 GFLOPS", verdict(1.0, 0.99, 10.0), "at least 0.198 GFLOP/s"),
    ("0.2 GFLOPS", verdict(1.0, 0.99, 10.0), ""),
    ("0.39 GB/s", verdict(1.0, 0.99, 10.0), "at least 0.396 GB/s"),
    ("1.5x", None, ""),
])
def test_lower_end_of_the_interval_must_reach_the_goal(text: str, best: Verdict | None,
                                                       words: str) -> None:
    wanted = goal.parse_goal(text)
    assert wanted is not None
    assert goal.reached_by(wanted, best, TARGET) == words


def test_verdict_without_interval_reaches_no_goal() -> None:
    wanted = goal.parse_goal("1.5x")
    assert wanted is not None
    assert goal.reached_by(wanted, samples.verdict(speedup_low=None, speedup=9.0), TARGET) == ""
