"""Watching a card: which bits and processes void a block, and a watch that never harms timing."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from harness.devices.monitoring import telemetry
from harness.devices.monitoring.foreign_processes import BY_NUMBER
from harness.devices.monitoring.telemetry import (
    CardHealth,
    ReadingRange,
    Sample,
    TelemetryWatch,
    evidence,
    slowdowns,
)
from tests.support.paths import DATA
from tests.support.processes import until

DATA = DATA / "health" / "h200_readings.json"
STRANGER = os.getppid()
MASKS = {0x8: "hardware slowdown", 0x20: "software thermal slowdown",
         0x40: "hardware thermal slowdown", 0x80: "hardware power brake"}


def readings(card: int, *, from_: tuple[str, ...] = ("nvml", "smi-xml", "smi-csv")) -> list[Sample]:
    """Return what was recorded of an H200, as samples at 0, 1, 2."""
    chosen = [one for one in json.loads(DATA.read_text())
              if one["card"] == card and one["from"] in from_]
    return [Sample(at_ns=at, sm_mhz=one["sm_mhz"], memory_mhz=one["memory_mhz"],
                   temperature_c=one["temperature_c"], power_w=one["power_mw"] / 1000,
                   reasons=one["reasons"], pids=tuple(one["pids"]))
            for at, one in enumerate(chosen)]


class Replay:
    """Gives recorded samples one after another, read now; the last one again and again."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples, self.given = list(samples), 0

    def sample(self) -> Sample:
        found = self.samples[min(self.given, len(self.samples) - 1)]
        self.given += 1
        return replace(found, at_ns=time.perf_counter_ns())


@contextmanager
def watch(source: telemetry.SampleSource, *, interval_s: float = 60.0) -> Iterator[TelemetryWatch]:
    """Watch, from the first sample (or failure) on; at this interval only blocks ask for more."""
    with TelemetryWatch(source, runners=lambda: 1, interval_s=interval_s) as watching:
        until(lambda: watching._tried_ns or isinstance(source, Hanging))
        yield watching


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy test machine take its time."""
    monkeypatch.setattr(telemetry, "PATIENCE_S", 20.0)


def block() -> tuple[int, int]:
    """Return a window that is over, as a block leaves it."""
    begin = time.perf_counter_ns()
    return begin, max(time.perf_counter_ns(), begin + 1)


def test_hardware_and_thermal_bits_void_and_no_others_do() -> None:
    for mask in range(1 << 11):
        assert slowdowns(mask) == tuple(word for bit, word in MASKS.items() if mask & bit)
        assert CardHealth(slowdown=slowdowns(mask)).voids == "; ".join(slowdowns(mask))


def test_a_window_holds_its_samples_and_the_nearest_around_it() -> None:
    chance = random.Random(7)
    for _ in range(3000):
        at = sorted(chance.choices(range(20), k=chance.randrange(9)))
        begin = chance.randrange(-2, 21)
        end = chance.randrange(begin, 23)
        inside = {index for index, when in enumerate(at) if begin <= when <= end}
        before = [index for index, when in enumerate(at) if when < begin][-1:]
        after = [index for index, when in enumerate(at) if when > end][:1]
        assert set(telemetry.around(at, begin, end)) == inside | {*before, *after}


def test_a_large_matmul_under_its_power_cap_voids_nothing() -> None:
    with watch(Replay(readings(1))) as watching:
        for _ in range(2):
            watching.between(*block())
    seen = watching.over([(0, time.perf_counter_ns())])
    assert seen.samples == 3 and seen.capped and not seen.voids
    assert (seen.sm_mhz, seen.temperature_c) == (
        ReadingRange(1455, 1485, 1500), ReadingRange(55, 56, 56))
    assert evidence(replace(seen, capped_share=0.613))[0].detail == (
        "SM 1485 MHz (1455-1500), memory 3201 MHz, 55-56 C, up to 692 W, "
        "software power cap in 61 % of the samples")


def test_what_a_card_reads_while_idle_is_not_the_clock_of_its_blocks() -> None:
    busy = readings(0, from_=("smi-xml-single",))
    with watch(Replay([*readings(0), *busy])) as watching:
        for _ in range(3):
            watching.between(*block())
    seen = watching.over([(0, time.perf_counter_ns())])
    assert seen.samples == 4 and seen.sm_mhz == ReadingRange(1980, 1980, 1980)
    assert evidence(seen)[0].detail == "SM 1980 MHz, memory 3201 MHz, 39-40 C, up to 133 W"


def test_a_slowdown_voids_the_block_beside_it_and_not_a_later_one() -> None:
    fine = readings(1)[0]
    hot = replace(fine, reasons=fine.reasons | 0x40)
    with watch(Replay([fine, hot, fine, fine])) as watching:
        found = [watching.between(*block()).voids for _ in range(3)]
    assert found == ["hardware thermal slowdown"] * 2 + [""]


def test_a_block_gets_a_sample_after_it_without_waiting_for_the_interval() -> None:
    with watch(Replay(readings(1))) as watching:
        begin, end = block()
        seen = watching.between(begin, end)
        assert seen.samples >= 1 and time.perf_counter_ns() - end < 15e9
        assert all(watching.between(*block()).samples == 2 for _ in range(20))


def test_samples_are_taken_by_themselves() -> None:
    source = Replay(readings(1))
    with watch(source, interval_s=0.001):
        assert until(lambda: source.given > 20)


def test_a_watch_ends_at_once_and_takes_its_thread_along() -> None:
    with watch(Replay(readings(1))) as watching:
        watching.between(*block())
        began = time.monotonic()
    assert time.monotonic() - began < 30 and not watching._thread.is_alive()
    assert watching.between(*block()).samples == 1  # asked later, it answers of what it has


class Failing:
    """Fails as often as told, then gives a recorded sample."""

    def __init__(self, error: Exception, times: float = float("inf")) -> None:
        self.error, self.left = error, times

    def sample(self) -> Sample:
        self.left -= 1
        if self.left >= 0:
            raise self.error
        return replace(readings(1)[0], at_ns=time.perf_counter_ns())


@pytest.mark.parametrize(("error", "told"), [
    (OSError("GPU is \x1b[31mlost"), "GPU is lost"), (ZeroDivisionError(), "ZeroDivisionError"),
    (ImportError("No module named 'pynvml'"), "No module named 'pynvml'")])
def test_a_failing_source_is_counted_and_told_and_voids_nothing(error: Exception,
                                                                told: str) -> None:
    with watch(Failing(error)) as watching:
        seen = watching.between(*block())
    assert seen.samples == 0 and not seen.voids and seen.sm_mhz is None
    assert seen.unavailable.startswith("2 of 2 ")
    assert seen.unavailable.endswith(f"samples failed: {told}")
    assert [one.kind for one in evidence(seen)] == ["clocks"]
    with watch(Failing(error, times=2)) as watching:
        found = [watching.between(*block()) for _ in range(4)]
    assert found[-1].samples == 2 and found[-1].unavailable.startswith("2 of 5 samples failed")


class Hanging:
    """Answers once its gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def sample(self) -> Sample:
        self.gate.wait(60)
        return replace(readings(1)[0], at_ns=time.perf_counter_ns())


def test_a_driver_that_hangs_holds_up_one_block_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "PATIENCE_S", 0.3)
    source, began = Hanging(), time.monotonic()
    with watch(source) as watching:
        found = [watching.between(*block()) for _ in range(50)]
    assert time.monotonic() - began < 25 * telemetry.PATIENCE_S  # each would wait for it
    assert all("has not answered" in one.unavailable and not one.voids for one in found)
    source.gate.set()
    assert until(lambda: not watching._thread.is_alive())


def test_a_foreign_process_voids_the_blocks_during_which_it_was_there() -> None:
    ours, both = ((os.getpid(),), (os.getpid(), STRANGER))
    fine = readings(1)[0]
    pids = [ours, ours, both, ours, ours]
    with watch(Replay([replace(fine, pids=one) for one in pids])) as watching:
        found = [watching.between(*block()).voids for _ in range(4)]
    told = f"foreign process on the card: {STRANGER}"
    assert found == ["", told, told, ""]


def test_repeated_blocks_are_counted_with_their_reasons() -> None:
    lines = evidence(CardHealth(unavailable_foreign=BY_NUMBER),
                     {"hardware slowdown": 2, "foreign process on the card: 7": 1})
    assert [(one.kind, one.detail) for one in lines] == [
        ("foreign", BY_NUMBER),
        ("voided", "3 blocks repeated: 1 for foreign process on the card: 7, "
                   "2 for hardware slowdown")]
    assert evidence(CardHealth(), {}) == ()
    assert "without a pid here" in CardHealth(foreign=(0,)).voids
