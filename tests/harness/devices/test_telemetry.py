"""Which throttle reasons and processes void a block; faults of a driver never stop the timing."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.devices.monitoring import telemetry
from harness.devices.monitoring.telemetry import (
    CardHealth,
    ReadingRange,
    Sample,
    evidence,
    slowdowns,
)
from harness.devices.monitoring.tenants import BY_NUMBER
from tests.support.devices.telemetry_case import Hanging, block, readings, watch
from tests.support.programs.processes import until

STRANGER = os.getppid()
MASKS = {0x8: "hardware slowdown", 0x20: "software thermal slowdown",
         0x40: "hardware thermal slowdown", 0x80: "hardware power brake"}


class Replay:
    """Returns recorded samples in order with the present time, then repeats the last one."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples, self.position = list(samples), 0

    def sample(self) -> Sample:
        sample = self.samples[min(self.position, len(self.samples) - 1)]
        self.position += 1
        return replace(sample, at_ns=time.perf_counter_ns())


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow for a busy test machine."""
    monkeypatch.setattr(telemetry, "PATIENCE_S", 20.0)


def test_only_hardware_and_thermal_throttle_reasons_void_a_block() -> None:
    for mask in range(1 << 11):
        assert slowdowns(mask) == tuple(word for bit, word in MASKS.items() if mask & bit)


def test_window_includes_the_nearest_samples_before_and_after_it() -> None:
    chance = random.Random(7)
    for _ in range(3000):
        at = sorted(chance.choices(range(20), k=chance.randrange(9)))
        begin = chance.randrange(-2, 21)
        end = chance.randrange(begin, 23)
        inside = {index for index, when in enumerate(at) if begin <= when <= end}
        before = [index for index, when in enumerate(at) if when < begin][-1:]
        after = [index for index, when in enumerate(at) if when > end][:1]
        assert set(telemetry.around(at, begin, end)) == inside | {*before, *after}


def test_software_power_cap_voids_no_block() -> None:
    with watch(Replay(readings(1))) as watching:
        for _ in range(2):
            watching.between(*block())
    seen = watching.over([(0, time.perf_counter_ns())])
    assert seen.samples == 3 and seen.capped_share and not seen.slowdown and not seen.foreign
    assert (seen.sm_mhz, seen.temperature_c) == (
        ReadingRange(1455, 1485, 1500), ReadingRange(55, 56, 56))
    assert evidence(replace(seen, capped_share=0.613))[0].detail == (
        "SM 1485 MHz (1455-1500), memory 3201 MHz, 55-56 C, up to 692 W, "
        "software power cap in 61 % of the samples")


def test_idle_samples_do_not_count_as_clocks_of_blocks() -> None:
    busy = readings(0, from_=("smi-xml-single",))
    with watch(Replay([*readings(0), *busy])) as watching:
        for _ in range(3):
            watching.between(*block())
    seen = watching.over([(0, time.perf_counter_ns())])
    assert seen.samples == 4 and seen.sm_mhz == ReadingRange(1980, 1980, 1980)
    assert evidence(seen)[0].detail == "SM 1980 MHz, memory 3201 MHz, 39-40 C, up to 133 W"


def test_slowdown_voids_only_the_blocks_next_to_it() -> None:
    fine = readings(1)[0]
    hot = replace(fine, reasons=fine.reasons | 0x40)
    with watch(Replay([fine, hot, fine, fine])) as watching:
        reasons = [watching.between(*block()).slowdown for _ in range(3)]
    assert reasons == [("hardware thermal slowdown",)] * 2 + [()]


def test_block_triggers_a_sample_before_the_interval_ends() -> None:
    with watch(Replay(readings(1))) as watching:
        begin, end = block()
        seen = watching.between(begin, end)
        assert seen.samples >= 1 and time.perf_counter_ns() - end < 15e9
        assert all(watching.between(*block()).samples == 2 for _ in range(20))


def test_samples_are_taken_at_the_interval() -> None:
    source = Replay(readings(1))
    with watch(source, interval_s=0.001):
        assert until(lambda: source.position > 20)


def test_watch_ends_its_thread_without_delay() -> None:
    with watch(Replay(readings(1))) as watching:
        watching.between(*block())
        began = time.monotonic()
    assert time.monotonic() - began < 30 and not watching._thread.is_alive()
    assert watching.between(*block()).samples == 1  # later requests use the samples taken so far


class Failing:
    """Fails a number of times, then returns a recorded sample."""

    def __init__(self, error: Exception, times: float = float("inf")) -> None:
        self.error, self.left = error, times

    def sample(self) -> Sample:
        self.left -= 1
        if self.left >= 0:
            raise self.error
        return replace(readings(1)[0], at_ns=time.perf_counter_ns())


@pytest.mark.parametrize(("error", "message"), [
    (OSError("GPU is \x1b[31mlost"), "GPU is lost"), (ZeroDivisionError(), "ZeroDivisionError"),
    (ImportError("No module named 'pynvml'"), "No module named 'pynvml'")])
def test_failed_samples_are_counted_and_void_no_block(error: Exception,
                                                      message: str) -> None:
    with watch(Failing(error)) as watching:
        seen = watching.between(*block())
    assert seen.samples == 0 and not seen.slowdown and seen.sm_mhz is None
    assert seen.unavailable.startswith("2 of 2 ")
    assert seen.unavailable.endswith(f"samples failed: {message}")
    assert [line.kind for line in evidence(seen)] == ["clocks"]
    with watch(Failing(error, times=2)) as watching:
        healths = [watching.between(*block()) for _ in range(4)]
    assert healths[-1].samples == 2 and healths[-1].unavailable.startswith("2 of 5 samples failed")


def test_hanging_driver_delays_only_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "PATIENCE_S", 0.3)
    source, began = Hanging(), time.monotonic()
    with watch(source) as watching:
        healths = [watching.between(*block()) for _ in range(50)]
    assert time.monotonic() - began < 25 * telemetry.PATIENCE_S  # not one wait for each block
    assert all("has not answered" in health.unavailable and not health.slowdown
               for health in healths)
    source.gate.set()
    assert until(lambda: not watching._thread.is_alive())


def test_foreign_process_voids_the_blocks_during_which_it_runs() -> None:
    ours, both = ((os.getpid(),), (os.getpid(), STRANGER))
    fine = readings(1)[0]
    pids = [ours, ours, both, ours, ours]
    with watch(Replay([replace(fine, pids=listed) for listed in pids])) as watching:
        foreign = [watching.between(*block()).foreign for _ in range(4)]
    assert foreign == [(), (STRANGER,), (STRANGER,), ()]


def test_evidence_counts_repeated_blocks_by_reason() -> None:
    lines = evidence(CardHealth(unavailable_foreign=BY_NUMBER),
                     {"hardware slowdown": 2, "foreign process on the card: 7": 1})
    assert [(line.kind, line.detail) for line in lines] == [
        ("foreign", BY_NUMBER),
        ("voided", "3 blocks repeated: 1 for foreign process on the card: 7, "
                   "2 for hardware slowdown")]
    assert evidence(CardHealth(), {}) == ()
