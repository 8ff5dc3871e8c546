"""Paired timing: outcomes by interval, void blocks, and failures of either side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from typing import Any, cast

import pytest

from harness.devices.device import Device
from harness.devices.monitoring import interference
from harness.errors import DeviceFault, EnvironmentFault
from harness.isolation.rpc import Peer
from harness.tasks.target import ConfigClass
from harness.timing.outcome import call_outcome, is_hopeless, is_settled, is_small_gain
from harness.timing.paired_blocks import SINGLE_NS
from harness.timing.paired_timing import PairedTiming
from harness.timing.plan import (
    LARGEST_RING,
    MOST_COPIES,
    MOST_SLOTS,
    RING_BYTES,
    BlockSizes,
    Plan,
)
from harness.timing.stats import Estimate, estimate
from harness.timing.timed_block import WarmupAnswer
from harness.timing.timed_slots import SlotSource
from harness.verdict import Evidence
from tests.support.kernels import kernel_case
from tests.support.kernels.c_case import FAST, QUICK, RIGHT, SLOW, Bench, kernel, target

ONE_CLASS = target(classes=(ConfigClass(name="even", shape={"n": 8192}),))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    started = Bench(tmp_path_factory.mktemp("bench"), ONE_CLASS)
    yield started
    started.oracle.close()


def certain(percent: float, spread: float = 0.02) -> Estimate:
    """Return an estimate of eight pairs around a gain in percent, with a spread in percent."""
    return estimate([math.log1p((percent + spread * (-1) ** i) / 100) for i in range(8)], 0.001)


@pytest.mark.parametrize(("value", "again", "other", "expected"), [
    (certain(3.0), None, None, "faster"),
    (certain(0.6), None, None, "tie"),
    (certain(0.6), certain(0.5), None, "faster"),  # the same sign twice in a row
    (certain(0.6), certain(0.0), None, "tie"),
    (certain(0.6), certain(-0.6), None, "tie"),
    (certain(0.0), certain(0.6), None, "tie"),
    (certain(3.0), None, certain(2.0), "faster"),
    (certain(3.0), None, certain(0.0), "faster"),  # an interval that includes 0 contradicts nothing
    (certain(3.0), None, certain(-0.5), "tie"),
    (certain(0.6), certain(0.6), certain(-0.5), "tie"),
    (certain(3.0), None, certain(-40.0, spread=30.0), "tie"),  # noisy, and yet longer
    (certain(-3.0), None, certain(3.0), "slower"),
    (certain(3.0, spread=20.0), None, None, "tie"),
])
def test_gain_needs_the_margin_or_a_repetition_and_no_contradiction(
        value: Estimate, again: Estimate | None, other: Estimate | None, expected: str) -> None:
    assert call_outcome(value, 0.01, again=again, other=other) == expected


@pytest.mark.parametrize(("other", "expected"), [
    (None, True), (certain(0.0), True), (certain(-40.0), True), (certain(-1.0, spread=10.0), True),
    (certain(-10.0, spread=50.0), False)])
def test_gain_is_settled_unless_the_other_time_seems_longer_and_is_noisy(
        other: Estimate | None, expected: bool) -> None:
    assert is_settled(certain(3.0), 0.01, 0.01, other) is expected


@pytest.mark.parametrize(("percents", "expected"), [
    ((-20.0, 0.0), True), ((-20.0, 3.0), False), ((-3.0, 0.0), False), ((3.0, 0.0), False)])
def test_lost_class_ends_all_pairs_unless_another_class_gains(
        percents: Sequence[float], expected: bool) -> None:
    assert is_hopeless([certain(percent) for percent in percents], 0.01, 0.01) is expected


@pytest.mark.parametrize(("value", "expected"), [
    (certain(0.6), True), (certain(3.0), False), (certain(0.0), False), (certain(-0.6), False)])
def test_small_gain_is_certain_and_below_the_margin(
        value: Estimate, expected: bool) -> None:
    assert is_small_gain(value, 0.01) is expected


@pytest.mark.parametrize(("cache", "footprint", "copies"), [
    (0, 1000, 1), (60_000_000, 120_000_000, 1), (60_000_000, 119_999_999, 2),
    (60_000_000, 30_000_000, 4), (60_000_000, 262_144, 458), (60_000_000, 100, MOST_COPIES),
    (60_000_000, 0, MOST_COPIES)])
def test_copies_hold_twice_the_cache_up_to_most_copies(
        cache: int, footprint: int, copies: int) -> None:
    assert Plan(cache_bytes=cache).copies(footprint) == copies


def test_half_of_the_blocks_are_long() -> None:
    sizes = Plan().sizes(1000, 1e5)
    assert [sizes.factor(block) for block in range(8)] == [1, 3, 3, 1, 1, 3, 3, 1]


@pytest.mark.parametrize(("slot_bytes", "call_ns", "expected"), [
    (1000, 1e5, BlockSizes(calls=20, long=3, blocks=6)),  # blocks last as long as planned
    (1000, 1e7, BlockSizes(calls=1, long=3, blocks=6)),
    (1000, 1.0, BlockSizes(calls=(MOST_SLOTS - 1) // 3, long=3, blocks=24)),
    # half as many calls per block, twice as many blocks
    (RING_BYTES // 31, 1e5, BlockSizes(calls=10, long=3, blocks=12)),
    (RING_BYTES // 4, 1e5, BlockSizes(calls=1, long=3, blocks=24)),
    (RING_BYTES, 1e5, BlockSizes(calls=1, long=3, blocks=24)),  # slots take more than RING_BYTES
    (LARGEST_RING // 4, 1e5, BlockSizes(calls=1, long=3, blocks=24)),
    (LARGEST_RING // 4 + 1, 1e5, BlockSizes(calls=1, long=1, blocks=6))])
def test_every_call_of_a_block_has_a_slot_and_shorter_blocks_are_more_numerous(
        slot_bytes: int, call_ns: float, expected: BlockSizes) -> None:
    sizes = Plan().sizes(slot_bytes, call_ns)
    assert sizes == expected
    assert sizes.slots == sizes.calls * sizes.long + 1 <= MOST_SLOTS
    assert sizes.slots * slot_bytes <= (LARGEST_RING if slot_bytes > RING_BYTES // 4
                                        else RING_BYTES) or sizes.long == 1


@pytest.mark.parametrize(("call_us", "launch_us", "is_long"), [
    (499, 20, False), (500, 20, True), (500, 250, True),
    (500, 400, False),  # a module of many kernels: the GPU waits for the host
    (90_000, 60_000, False), (500, 0, True)])  # a C kernel reports no launch time
def test_calls_are_timed_one_by_one_only_where_the_host_stays_ahead(
        call_us: float, launch_us: float, is_long: bool) -> None:
    answer = WarmupAnswer(call_ns=1e3 * call_us, launch_ns=1e3 * launch_us)
    assert answer.is_long(SINGLE_NS) == is_long


def test_a_pair_is_reported_before_its_runners_start() -> None:
    seen: list[tuple[int, int] | str] = []

    def start(order: Sequence[str]) -> Sequence[Peer]:
        seen.append("started")
        raise EnvironmentFault("no more")

    timing = PairedTiming(Plan(looks=(3, 5)), [], cast(SlotSource, None), start,
                          on_pair=lambda number, most: seen.append((number, most)))
    with pytest.raises(EnvironmentFault):
        timing.run()
    assert seen == [(1, 5), "started"]


class Slowdown:
    """A card whose first `times` blocks are void; a reason in `late` voids the measurement."""

    def __init__(self, times: int, late: str = "") -> None:
        self.left, self.late = times, late

    def voids_all(self) -> str:
        return self.late

    def voids(self, begin_ns: int, end_ns: int) -> str:
        assert begin_ns < end_ns <= perf_counter_ns()
        self.left -= 1
        return "hardware slowdown" if self.left >= 0 else ""

    def evidence(self, voided: Mapping[str, int]) -> Iterator[Evidence]:
        for reason, count in voided.items():
            yield Evidence(kind="voided", detail=f"{count} for {reason}")


@pytest.mark.parametrize("times", [pytest.param(0, marks=pytest.mark.slow), 5])
def test_blocks_under_a_slowdown_are_repeated_and_counted(
        times: int, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    card = Slowdown(times)

    @contextmanager
    def monitored(device: Device) -> Iterator[Slowdown]:
        yield card
    monkeypatch.setattr(interference, "monitored", monitored)
    verdict = bench.judge(FAST)
    assert verdict.valid and verdict.correct and verdict.speedup, verdict
    details = [line.detail for line in verdict.evidence if line.kind == "voided"]
    assert details == ([f"{times} for hardware slowdown"] if times else [])


def test_card_that_stays_slow_is_a_fault(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def monitored(device: Device) -> Iterator[Slowdown]:
        yield Slowdown(1 << 30)
    monkeypatch.setattr(interference, "monitored", monitored)
    with pytest.raises(EnvironmentFault, match="blocks in a row were void: hardware slowdown"):
        assert bench.judge(FAST) is None


def test_late_sample_voids_the_measurement(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def monitored(device: Device) -> Iterator[Slowdown]:
        yield Slowdown(0, "process 7 started to use the card")
    monkeypatch.setattr(interference, "monitored", monitored)
    with pytest.raises(DeviceFault, match="every measurement was voided: process 7 started"):
        bench.judge(FAST)


class Beside(Slowdown):
    """A card with a stranger from the start."""

    def evidence(self, voided: Mapping[str, int]) -> Iterator[Evidence]:
        yield Evidence(kind=interference.STRANGER, detail="timed beside process 7")


def test_verdict_on_a_failure_during_timing_names_strangers_on_the_card(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stranger may be the cause, for example by the memory that it holds."""
    @contextmanager
    def monitored(device: Device) -> Iterator[Slowdown]:
        yield Beside(0)
    monkeypatch.setattr(interference, "monitored", monitored)
    verdict = bench.judge(kernel("static int calls; if (++calls > 300) abort(); " + RIGHT))
    assert "failed while timed" in (verdict.rejected_reason or ""), verdict
    assert "timed beside process 7" in [line.detail for line in verdict.evidence]


def test_verdict_reports_clock_band_and_cost(bench: Bench) -> None:
    verdict = bench.judge(FAST)
    details = {line.kind: line.detail for line in verdict.evidence}
    assert "the harness's own clock" in details["clock"]
    assert "s of timed calls in" in details["cost"]


def test_results_cached_by_a_sum_of_inputs_gain_nothing(bench: Bench) -> None:
    memo = kernel("""double s = 0; for (int64_t i = 0; i < n; i++) s += x[i] * (double)x[i];
    unsigned long bits; memcpy(&bits, &s, 8);
    unsigned at = bits * 0x9E3779B97F4A7C15ul >> 54;
    if (sums[at] == s) { memcpy(out, kept[at], 4 * n); return; }
    for (int k = 0; k < 60; k++) { """ + RIGHT + """ __asm__ volatile("" : : : "memory"); }
    sums[at] = s; memcpy(kept[at], out, 4 * n);""",
                  "static double sums[1024]; static float kept[1024][8192];")
    verdict = bench.judge(memo, plan=Plan(looks=(4,), alpha=0.01))
    assert not verdict.valid or verdict.rows[0].outcome != "faster", verdict


WRONG_AT_TIMES = """static long calls;
    int wrong = calls++ > 400 && calls % 97 == 0; """


def test_one_wrong_answer_among_timed_calls_is_rejected(bench: Bench) -> None:
    verdict = bench.judge(kernel(WRONG_AT_TIMES + RIGHT + " if (wrong) out[n / 2] += 1;"))
    assert not verdict.valid, verdict
    assert {finding.rule for finding in verdict.audit} & {"timed-answer"}, verdict
    assert "a timed call gave a wrong answer" in (verdict.rejected_reason or ""), verdict


def test_one_skipped_call_among_timed_calls_is_rejected(bench: Bench) -> None:
    """The output of a skipped call holds NaN or an earlier answer to other inputs."""
    verdict = bench.judge(kernel(WRONG_AT_TIMES + "if (wrong) return; " + RIGHT))
    assert not verdict.valid, verdict
    assert {finding.rule for finding in verdict.audit} & {"timed-answer"}, verdict


@pytest.mark.parametrize("write", [
    "((float *)x)[3] = 0;", "out[n] = 0;",
    pytest.param("out[n + 900] = 0;", marks=pytest.mark.slow)])
def test_timed_call_that_writes_outside_its_outputs_is_rejected(write: str, bench: Bench) -> None:
    verdict = bench.judge(kernel("static long calls; " + RIGHT
                                 + f" if (calls++ > 400) {{ {write} }}"))
    assert not verdict.valid, verdict
    assert "overwrote its input x" in str(verdict) or "past the end of out" in str(verdict), verdict


@pytest.mark.parametrize("returns", [
    pytest.param(False, id="written"), pytest.param(True, id="returned", marks=pytest.mark.slow)])
def test_measurement_with_the_steps_for_a_gpu_ends_on_a_machine_without_one(
        returns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, both sides keep running and caches are emptied; no graph can be captured."""
    began = PairedTiming.__init__

    def as_on_a_gpu(self: PairedTiming, plan: Plan, *args: Any, **kwargs: Any) -> None:
        began(self, replace(plan, cache_bytes=1 << 20), *args, **{**kwargs, "alone": False})
    monkeypatch.setattr(PairedTiming, "__init__", as_on_a_gpu)
    task = kernel_case.target(language="python", classes=(
        ConfigClass(name="one", shape={"n": 3000}), ConfigClass(name="two", shape={"n": 500})))
    slow = "    for _ in range(30): y = x + x\n"
    if returns:
        task = replace(task, returns=True, return_dtypes=("float32",), args=task.args[:1])
        body, incumbent = "return x + x", f"def double(x):\n{slow}    return y\n"
    else:
        body, incumbent = "out.copy_(x + x)", f"def double(x, out):\n{slow}    out.copy_(y)\n"
    head = "def double(x):\n    " if returns else "def double(x, out):\n    "
    verdict = kernel_case.judge(tmp_path, head + body + "\n", incumbent, of=task,
                                plan=replace(QUICK, looks=(2,)))
    assert verdict.correct and [row.pairs for row in verdict.rows] == [2, 2], verdict
    judged = next(line.detail for line in verdict.evidence if line.kind == "judged")
    assert judged.startswith("all "), judged


@pytest.mark.parametrize(("source", "pairs"), [
    pytest.param(SLOW.replace("k < 4", "k < 64"), (2, 3), id="lost"),
    pytest.param(FAST, (5,), id="gained")])
def test_more_pairs_are_timed_for_the_clock_unless_the_candidate_has_lost(
        bench: Bench, monkeypatch: pytest.MonkeyPatch, source: str, pairs: tuple[int, ...]) -> None:
    monkeypatch.setattr(PairedTiming, "gain_within_band", "even")
    monkeypatch.setattr(PairedTiming, "bands", {"even": 0.1})
    verdict = bench.judge(source, plan=QUICK)
    assert verdict.rows[0].pairs in pairs, verdict
