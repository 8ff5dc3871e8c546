"""Bottlenecks compare a class with the roofline and ignore what earlier verdicts recorded."""

from __future__ import annotations

import math

import pytest

from engine.planning import bottlenecks
from harness.roofline.ceilings import Level
from harness.roofline.roofline import Roofline
from harness.target import ConfigClass
from harness.verdict import Row
from tests.support.c_case import target


def test_planner_measures_headroom_against_the_roofline() -> None:
    """An old verdict's percentage was of the guard's floor: it is computed again."""
    of = target(classes=(ConfigClass(name="c", shape={"n": 1 << 20}),), bytes=134_000_000)
    old = Row(config_class="c", correct=True, latency_us=34.0, pct_of_roofline=42.0)
    reach = Roofline(gflops=740e3, levels=(Level(math.inf, 4240.0),))
    [lead] = bottlenecks.of_rows(of, (), [old], reach)
    assert lead.bottleneck.limiter == "memory"
    assert lead.bottleneck.value == pytest.approx(93, abs=0.5)
    assert lead.bottleneck.detail == "34 us against a roofline of 31.6 us at 4240 GB/s"
    [unknown] = bottlenecks.of_rows(of, (), [old], None)
    assert unknown.bottleneck.limiter == "latency" and unknown.bottleneck.value == 42.0
