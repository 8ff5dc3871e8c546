"""What is measured how often, which blocks do not count, and what the numbers are called."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns

import pytest

from harness.devices.device import Device
from harness.devices.monitoring import interference
from harness.errors import DeviceFault, EnvironmentFault, IncumbentFault
from harness.target import ConfigClass
from harness.timing.outcome import call_outcome, is_small_gain
from harness.timing.plan import MOST_COPIES, Plan
from harness.timing.stats import Estimate, estimate
from harness.verdict import Evidence
from tests.support.c_case import FAST, RIGHT, Bench, judge, kernel, target

ONE = target(classes=(ConfigClass(name="even", shape={"n": 8192}),))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench"), ONE)
    yield made
    made.oracle.close()


def sure(percent: float, spread: float = 0.02) -> Estimate:
    """Return an estimate of eight pairs around a gain, spread by so many percent."""
    return estimate([math.log1p((percent + spread * (-1) ** i) / 100) for i in range(8)], 0.001)


@pytest.mark.parametrize(("value", "again", "other", "expected"), [
    (sure(3.0), None, None, "faster"),
    (sure(0.6), None, None, "tie"),
    (sure(0.6), sure(0.5), None, "faster"),  # the same direction twice in a row
    (sure(0.6), sure(0.0), None, "tie"),
    (sure(0.6), sure(-0.6), None, "tie"),
    (sure(0.0), sure(0.6), None, "tie"),
    (sure(3.0), None, sure(2.0), "faster"),
    (sure(3.0), None, sure(0.0), "faster"),  # no sign at all is no other sign
    (sure(3.0), None, sure(-0.5), "tie"),
    (sure(0.6), sure(0.6), sure(-0.5), "tie"),
    (sure(-3.0), None, sure(3.0), "slower"),
    (sure(3.0, spread=20.0), None, None, "tie"),
])
def test_a_gain_needs_the_margin_or_to_be_seen_twice_and_no_contradiction(
        value: Estimate, again: Estimate | None, other: Estimate | None, expected: str) -> None:
    assert call_outcome(value, 0.01, again=again, other=other) == expected


@pytest.mark.parametrize(("value", "expected"), [
    (sure(0.6), True), (sure(3.0), False), (sure(0.0), False), (sure(-0.6), False)])
def test_only_a_certain_gain_below_the_margin_is_measured_again(
        value: Estimate, expected: bool) -> None:
    assert is_small_gain(value, 0.01) is expected


@pytest.mark.parametrize(("cache", "footprint", "copies"), [
    (0, 1000, 1), (60_000_000, 120_000_000, 1), (60_000_000, 119_999_999, 2),
    (60_000_000, 30_000_000, 4), (60_000_000, 262_144, 458), (60_000_000, 100, MOST_COPIES),
    (60_000_000, 0, MOST_COPIES)])
def test_copies_hold_twice_what_the_cache_does(cache: int, footprint: int, copies: int) -> None:
    assert Plan(cache_bytes=cache).copies(footprint) == copies


def test_half_of_the_blocks_are_long_and_no_side_has_them_first() -> None:
    assert [Plan().factor(block) for block in range(8)] == [1, 3, 3, 1, 1, 3, 3, 1]


class Slowdown:
    """A card that is slow for the first questions about it, or in all, as is seen `late`."""

    def __init__(self, times: int, late: str = "") -> None:
        self.left, self.late = times, late

    def voids_all(self) -> str:
        return self.late

    def voids(self, begin_ns: int, end_ns: int) -> str:
        assert begin_ns < end_ns <= perf_counter_ns()
        self.left -= 1
        return "hardware slowdown" if self.left >= 0 else ""

    def evidence(self, voided: Mapping[str, int]) -> Iterator[Evidence]:
        for why, count in voided.items():
            yield Evidence(kind="voided", detail=f"{count} for {why}")


@pytest.mark.parametrize("times", [0, 1, 5])
def test_blocks_under_a_slowdown_are_repeated_and_counted(
        times: int, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    card = Slowdown(times)

    @contextmanager
    def over(device: Device) -> Iterator[Slowdown]:
        yield card
    monkeypatch.setattr(interference, "monitored", over)
    verdict = bench.judge(FAST)
    assert verdict.valid and verdict.correct and verdict.speedup, verdict
    told = [one.detail for one in verdict.evidence if one.kind == "voided"]
    assert told == ([f"{times} for hardware slowdown"] if times else [])


def test_a_card_that_stays_slow_is_told_in_one_line(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def over(device: Device) -> Iterator[Slowdown]:
        yield Slowdown(1 << 30)
    monkeypatch.setattr(interference, "monitored", over)
    with pytest.raises(EnvironmentFault, match="had to be voided: hardware slowdown"):
        bench.judge(FAST)


def test_what_is_seen_late_voids_the_measurement(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def over(device: Device) -> Iterator[Slowdown]:
        yield Slowdown(0, "process 7 came onto the card")
    monkeypatch.setattr(interference, "monitored", over)
    with pytest.raises(DeviceFault, match="every measurement was voided: process 7 came"):
        bench.judge(FAST)


class Beside(Slowdown):
    """A card that a stranger was on from the start."""

    def evidence(self, voided: Mapping[str, int]) -> Iterator[Evidence]:
        yield Evidence(kind=interference.STRANGER, detail="timed beside process 7")


def test_what_fails_while_it_is_timed_says_who_was_beside_it(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have failed for the stranger: for the memory that it holds, say."""
    @contextmanager
    def over(device: Device) -> Iterator[Slowdown]:
        yield Beside(0)
    monkeypatch.setattr(interference, "monitored", over)
    verdict = bench.judge(kernel("static int calls; if (++calls > 2000) abort(); " + RIGHT))
    assert "failed while timed" in (verdict.rejected_reason or ""), verdict
    assert [one.detail for one in verdict.evidence] == ["timed beside process 7"]


def test_an_incumbent_that_crashes_by_itself_is_no_candidate_s_fault(tmp_path: Path) -> None:
    with pytest.raises(IncumbentFault, match="the incumbent fails alone: crashed"):
        judge(tmp_path, FAST, incumbent=kernel("abort();"))


def test_an_incumbent_that_crashes_beside_a_candidate_alone_is_the_candidate_s_fault(
        tmp_path: Path) -> None:
    """A candidate may have taken the memory that the incumbent needs."""
    once = kernel('FILE *ran = fopen("ran", "r"); if (!ran) { fclose(fopen("ran", "w")); abort(); }'
                  "fclose(ran);" + RIGHT, "#include <stdio.h>")
    verdict = judge(tmp_path, FAST, incumbent=once)
    assert verdict.rejected_reason == ("failed while timed: beside it the incumbent crashed "
                                       "(SIGABRT)"), verdict


def test_the_verdict_says_how_far_its_times_are_accounted_for(bench: Bench) -> None:
    verdict = bench.judge(FAST)
    told = {one.kind: one.detail for one in verdict.evidence}
    assert "by the harness's own clock" in told["clock"]
    assert "s of timed calls in" in told["cost"]


def test_a_memory_that_goes_by_a_sum_of_its_inputs_is_found(bench: Bench) -> None:
    memo = kernel("""double s = 0; for (int64_t i = 0; i < n; i++) s += x[i] * (double)x[i];
    unsigned long bits; memcpy(&bits, &s, 8);
    unsigned at = bits * 0x9E3779B97F4A7C15ul >> 54;
    if (sums[at] == s) { memcpy(out, kept[at], 4 * n); return; }
    for (int k = 0; k < 60; k++) { """ + RIGHT + """ __asm__ volatile("" : : : "memory"); }
    sums[at] = s; memcpy(kept[at], out, 4 * n);""",
                  "static double sums[1024]; static float kept[1024][8192];")
    verdict = bench.judge(memo, plan=Plan(looks=(4,), alpha=0.01))
    assert not verdict.valid, verdict
    assert {one.rule for one in verdict.audit} & {"memo", "clock"}, verdict
