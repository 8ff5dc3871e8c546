"""The means of a verdict whose classes were timed by different numbers of pairs."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import pytest

from engine.judge.judge import Policy, rule
from harness.case import Errors
from harness.evaluate import verdict_rows
from harness.evaluate.verdict_rows import EvaluationResults
from harness.roofline import ceilings
from harness.roofline.ceilings import Ceilings, Level
from harness.roofline.roofline import of_cpu
from harness.tasks.target import ConfigClass
from harness.timing.block_times import TimedBlock
from harness.timing.paired_blocks import PairedBlocks
from harness.timing.paired_timing import ClassTiming
from harness.timing.plan import BlockSizes, Plan
from harness.timing.timed_slots import Disputes, SlotComparison, TimedSlots
from harness.verdict import Evidence, Finding, Verdict
from kopt_tui.cli.output import exit_code, print_verdict
from tests.support.kernels.c_case import target

RIGHT = Errors(absolute=0.0, relative=0.0, bad=0, used=0.0, over=0.0, allowed=1e-6)


def timed(name: str, gain: float, pairs: int) -> ClassTiming:
    rng = random.Random(name)
    return ClassTiming(config_class=name, candidate_us=10.0, incumbent_us=10.0 * (1 + gain),
                       log_ratios=tuple(math.log1p(gain) + rng.gauss(0, 0.002)
                                        for _ in range(pairs)))


@pytest.mark.parametrize("pairs", [(4, 4), (4, 9), (9, 6)])
def test_verdict_averages_classes_with_different_pair_counts(pairs: tuple[int, int]) -> None:
    task = target(classes=(ConfigClass(name="small", shape={"n": 1024}),
                           ConfigClass(name="large", shape={"n": 4096}, weight=3.0)))
    timings = {"small": timed("small", 0.1, pairs[0]), "large": timed("large", 0.2, pairs[1])}
    seen = EvaluationResults(
        target=task,
        plan=Plan(alpha=0.05),
        errors={"small": RIGHT, "large": RIGHT},
        timings=timings,
        ceilings=None,
        on_cpu=True,
        same=False,
    )
    rows, found = verdict_rows.rows(seen)
    verdict = verdict_rows.with_overall(
        Verdict(valid=True, correct=True, rows=rows, audit=found), seen
    )
    assert [row.pairs for row in verdict.rows] == list(pairs)
    assert verdict.speedup == pytest.approx((1.1 * 1.2**3) ** 0.25, rel=0.005)
    assert verdict.speedup_low is not None and verdict.speedup_high is not None
    assert 1.1 < verdict.speedup_low < verdict.speedup < verdict.speedup_high < 1.25


def test_row_includes_the_unscored_time() -> None:
    task = target(classes=(ConfigClass(name="small", shape={"n": 1024}),))
    both = replace(timed("small", 0.1, 4), other_ratios=(0.05, 0.06, 0.05, 0.06),
                   other_us=30.0, incumbent_other_us=33.0)
    for timing, expected in ((both, (30.0, 33.0)), (timed("small", 0.1, 4), (None, None))):
        seen = EvaluationResults(target=task, plan=Plan(alpha=0.05), errors={"small": RIGHT},
                    timings={"small": timing}, ceilings=None, on_cpu=False, same=False)
        ((row,), _) = verdict_rows.rows(seen)
        assert (row.other_us, row.incumbent_other_us) == expected
        assert (row.latency_us, row.incumbent_us) == (10.0, pytest.approx(11.0))


class AgreeingSlots(TimedSlots):
    """Slots in which both sides answer alike, but the candidate overwrites its input."""

    def draw(self, count: int) -> None:
        pass

    def compare(self, count: int, order: Sequence[int]) -> SlotComparison:
        return SlotComparison(damage={})

    def judge(self, slot: int) -> dict[str, str]:
        return {"candidate": "overwrote its input x", "incumbent": ""}


class FixedTimes(PairedBlocks):
    """Paired blocks whose calls take the nanoseconds in `NS`."""

    NS: ClassVar = {("incumbent", "graph"): 8_000, ("candidate", "graph"): 4_000,
                    ("incumbent", "wall"): 20_000, ("candidate", "wall"): 15_000}

    def __init__(self, other_mode: str) -> None:
        self.plan, self.order = Plan(), ("incumbent", "candidate")
        self.blocks, self.others = {"incumbent": [], "candidate": []}, {}
        self.mode, self.other_mode = "graph", other_mode
        self._freeze, self._voids, self._disputes = False, None, Disputes()
        self._random, self._slots = random.SystemRandom(), AgreeingSlots()
        self.sizes = BlockSizes(calls=2, long=3, blocks=6)
        self._graph_orders = {2: [1, 0], 6: [5, 0, 3, 2, 4, 1]}
        self.damage = {}

    def _block(self, slots: TimedSlots, side: str, mode: str, order: list[int],
               count: int) -> TimedBlock:
        return TimedBlock(calls=len(order), ns=len(order) * self.NS[side, mode], asked_ns=0,
                          elapsed_ns=0)


def test_paired_blocks_keep_both_times() -> None:
    paired = FixedTimes("wall")
    assert paired.run() == (pytest.approx(math.log(2)), pytest.approx(math.log(4 / 3)))
    assert [paired.us_per_call(side) for side in paired.order] == [8.0, 4.0]
    assert [paired.other_us(side) for side in paired.order] == [20.0, 15.0]
    alone = FixedTimes("")
    assert alone.run()[1] is None and alone.other_us("candidate") is None


def test_input_overwritten_in_the_judged_slot_is_damage() -> None:
    paired = FixedTimes("")
    paired.run()
    assert paired.damage == {"candidate": "overwrote its input x"}


# at 1 GB/s, the class small with its 8 KiB or more has a floor of at least 8 us
FLOOR = Ceilings(gflops=1e6, levels=(Level(1e9, 1.0),), copy_gb_per_s=1.0)


def below(small: tuple[float, float], large: tuple[float, float], core: bool = False) -> Verdict:
    """Return a verdict on (candidate, incumbent) times of two classes, in units of their floors."""
    task = target(classes=(ConfigClass(name="small", shape={"n": 1024}, core=core),
                           ConfigClass(name="large", shape={"n": 4096})))
    timings = {}
    for one, (candidate, incumbent) in zip(task.classes, (small, large), strict=True):
        bound = ceilings.floor_us(FLOOR, task, one)
        timings[one.name] = ClassTiming(
            config_class=one.name, candidate_us=candidate * bound, incumbent_us=incumbent * bound,
            log_ratios=tuple(math.log(incumbent / candidate) + d for d in (0.001, 0, -0.001, 0)))
    seen = EvaluationResults(
        target=task,
        plan=Plan(alpha=0.05),
        errors={"small": RIGHT, "large": RIGHT},
        timings=timings,
        ceilings=FLOOR,
        roofline=of_cpu(FLOOR),
        on_cpu=True,
        same=False,
    )
    rows, found = verdict_rows.rows(seen)
    return verdict_rows.with_overall(
        Verdict(valid=True, correct=True, rows=rows, audit=found), seen
    )


def test_class_whose_incumbent_is_below_the_floor_is_not_compared() -> None:
    verdict = below((2.0, 0.5), (2.0, 3.0), core=True)
    small, large = verdict.rows
    assert small.outcome == "unmeasured" and small.log_ratio is small.low is small.high is None
    assert small.incumbent_us is None and small.pct_of_roofline == pytest.approx(50)
    assert small.latency_us == pytest.approx(2 * (small.floor_us or 0.0))
    assert "the incumbent's" in small.note and "below the physical floor" in small.note
    assert large.outcome == "faster" and large.latency_us and large.log_ratio
    assert verdict.speedup is verdict.speedup_low is verdict.speedup_high is None
    (finding,) = verdict.audit
    assert (finding.rule, finding.severity) == ("incumbent-floor", "flag")
    assert finding.detail.startswith("class small: the incumbent's ")


@pytest.mark.parametrize("approval", ["auto", "flagged", "review"])
@pytest.mark.parametrize("times", [((2.0, 0.5), (2.0, 3.0)), ((2.0, 0.5), (2.0, 0.5)),
                                   ((2.0, 0.99), (3.0, 2.0))])
def test_incumbent_below_the_floor_is_a_tie(
        approval: Literal["auto", "flagged", "review"],
        times: tuple[tuple[float, float], tuple[float, float]]) -> None:
    ruling = rule(below(*times), Policy(approval=approval))
    assert ruling.kind == "tie"


def test_candidate_below_the_floor_is_rejected() -> None:
    verdict = below((0.4, 0.5), (2.0, 3.0))
    assert [(f.rule, f.severity) for f in verdict.audit] == [("physical-floor", "reject")]
    assert verdict.rows[0].latency_us is None and verdict.rows[0].floor_us
    assert rule(verdict, Policy(approval="auto")).kind == "reject"


def test_command_line_reports_a_withheld_latency(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = below((0.4, 0.5), (2.0, 3.0))
    print_verdict(verdict)
    assert capsys.readouterr().out.startswith(
        "✗ correct, but latency withheld: below the physical floor of "
        f"{verdict.rows[0].floor_us:.3g} us (class small)\n")
    assert exit_code(verdict) == 1
    verdict = below((2.0, 0.5), (2.0, 3.0))
    print_verdict(verdict)
    out = capsys.readouterr().out
    assert out.startswith("✓ correct, not compared: class small: the incumbent's ")
    assert exit_code(verdict) == 0


def test_command_line_reports_further_rejections(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = replace(below((2.0, 3.0), (2.0, 3.0)), audit=(
        Finding(rule="clock", severity="reject", detail="the clock\x1b[2J was set"),))
    print_verdict(verdict)
    assert capsys.readouterr().out.startswith("✗ correct, but rejected: the clock was set\n")
    assert exit_code(verdict) == 1
    assert exit_code(replace(verdict, audit=())) == 0
    assert exit_code(Verdict(valid=False, rejected_reason="no")) == 1


def test_command_line_reports_compiler_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    print_verdict(Verdict(
        valid=True, correct=True, latency_us=2.0, latency_kind="predicted", evidence=(
            Evidence(kind="compiled", detail="sm_90 k (a): 12 registers"),
            Evidence(kind="card", detail="not this"))))
    out = capsys.readouterr().out
    assert "- compiled: sm_90 k (a): 12 registers\n" in out and "not this" not in out
