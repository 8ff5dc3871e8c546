"""The means of a verdict whose classes were timed by different numbers of pairs."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import ClassVar

import pytest

from harness import summary
from harness.clock import Block
from harness.duel import Duel
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


def test_a_row_has_the_time_that_is_not_scored_too() -> None:
    of = target(classes=(ConfigClass(name="small", shape={"n": 1024}),))
    both = replace(timed("small", 0.1, 4), other_ratios=(0.05, 0.06, 0.05, 0.06),
                   other_us=30.0, incumbent_other_us=33.0)
    for timing, told in ((both, (30.0, 33.0)), (timed("small", 0.1, 4), (None, None))):
        seen = Seen(target=of, plan=Plan(alpha=0.05), errors={"small": RIGHT},
                    timings={"small": timing}, ceilings=None, on_cpu=False, same=False)
        ((row,), _) = summary.rows(seen)
        assert (row.other_us, row.incumbent_other_us) == told
        assert (row.latency_us, row.incumbent_us) == (10.0, pytest.approx(11.0))


class Told(Duel):
    """A duel whose blocks take what is said here."""

    NS: ClassVar = {("incumbent", "graph"): 8_000, ("candidate", "graph"): 4_000,
                    ("incumbent", "wall"): 20_000, ("candidate", "wall"): 15_000}

    def __init__(self, other_mode: str) -> None:
        self.plan, self.order = Plan(), ("incumbent", "candidate")
        self.blocks, self.others = {"incumbent": [], "candidate": []}, {}
        self.mode, self.other_mode = "graph", other_mode
        self._alone, self._voids = False, None

    def _block(self, side: str, mode: str, factor: int) -> Block:
        return Block(calls=2 * factor, ns=2 * factor * self.NS[side, mode], asked_ns=0,
                     elapsed_ns=0, untimed_ns=0)


def test_a_duel_keeps_both_times() -> None:
    duel = Told("wall")
    assert duel.run() == (pytest.approx(math.log(2)), pytest.approx(math.log(4 / 3)))
    assert [duel.us_per_call(side) for side in duel.order] == [8.0, 4.0]
    assert [duel.other_us(side) for side in duel.order] == [20.0, 15.0]
    alone = Told("")
    assert alone.run()[1] is None and alone.other_us("candidate") is None
