"""The means of a verdict whose classes were timed by different numbers of pairs."""

from __future__ import annotations

import math
import random

import pytest

from harness import summary
from harness.oracle import Errors
from harness.plan import Plan
from harness.summary import Seen
from harness.target import ConfigClass
from harness.timing import ClassTiming
from harness.verdict import Verdict
from tests.c_case import target

RIGHT = Errors(absolute=0.0, relative=0.0, bad=0, used=0.0, over=0.0, allowed=1e-6)


def timed(name: str, gain: float, pairs: int) -> ClassTiming:
    rng = random.Random(name)
    return ClassTiming(config_class=name, candidate_us=10.0, incumbent_us=10.0 * (1 + gain),
                       log_ratios=tuple(math.log1p(gain) + rng.gauss(0, 0.002)
                                        for _ in range(pairs)))


@pytest.mark.parametrize("pairs", [(4, 4), (4, 9), (9, 6)])
def test_classes_that_settled_at_different_looks_have_one_mean(pairs: tuple[int, int]) -> None:
    of = target(classes=(ConfigClass(name="small", shape={"n": 1024}),
                         ConfigClass(name="large", shape={"n": 4096}, weight=3.0)))
    timings = {"small": timed("small", 0.1, pairs[0]), "large": timed("large", 0.2, pairs[1])}
    seen = Seen(target=of, plan=Plan(alpha=0.05), errors={"small": RIGHT, "large": RIGHT},
                timings=timings, ceilings=None, on_cpu=True, same=False)
    rows, found = summary.rows(seen)
    verdict = summary.with_overall(Verdict(valid=True, correct=True, rows=rows, audit=found), seen)
    assert [row.pairs for row in verdict.rows] == list(pairs)
    assert verdict.speedup == pytest.approx((1.1 * 1.2**3) ** 0.25, rel=0.005)
    assert verdict.speedup_low is not None and verdict.speedup_high is not None
    assert 1.1 < verdict.speedup_low < verdict.speedup < verdict.speedup_high < 1.25
