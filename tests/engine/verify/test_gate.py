"""The gate and the fleet: which cards may be used, who waits how long, what a lost card costs."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from engine.verify import gate
from engine.verify.fleet_device import FleetDevice, NoDeviceAvailable
from harness.devices import inventory
from harness.devices.device import DeviceProcess, DeviceState
from harness.devices.monitoring import tenants
from harness.devices.monitoring.tenants import StrangerDetector
from tests.support.devices.fleet_case import GIB, IDLE, TimedFleet, card


@pytest.mark.parametrize(("change", "before", "words"), [
    ({}, None, ""),
    ({"utilization_pct": 5.0}, None, ""),
    ({"utilization_pct": 6.0}, None, "6 % in use"),
    ({"utilization_pct": None, "processes": None, "memory_used": None}, None, "cannot tell"),
    ({"utilization_pct": None, "processes": None}, None, "cannot tell"),
    ({"utilization_pct": None}, None, ""),
    ({"processes": None}, None, ""),
    ({"processes": None, "memory_used": 80 * GIB}, {"memory_used": 80 * GIB}, "80.0 GiB"),
    ({"processes": None, "utilization_pct": 40.0}, None, "40 % in use"),
    ({"processes": (DeviceProcess(pid=41, name="python"),)}, None,
     "in use by process 41 (python)"),
    ({"processes": (DeviceProcess(pid=41), DeviceProcess(pid=42))}, None,
     "in use by process 41 and 1 more"),
    ({"memory_used": 14 * GIB}, None, ""),
    ({"memory_used": 80 * GIB}, None, "80.0 GiB of its memory in use"),
    ({"memory_used": 80 * GIB}, {"memory_used": 80 * GIB}, ""),
    ({"memory_used": 80 * GIB}, {"memory_used": 79 * GIB}, "and changing"),
    ({"memory_used": 80 * GIB}, {"memory_used": 81 * GIB}, "and changing"),
    ({"memory_used": 80 * GIB, "memory_total": None}, None, ""),
    ({"problem": "NVML: GPU is lost"}, None, "GPU is lost"),
    ({"throttle": ("hw-thermal",)}, None, "slowed down: hw-thermal"),
    ({"throttle": ("sw-power-cap", "idle")}, None, ""),
])
def test_busy_card_is_reported_with_what_makes_it_busy(
        change: dict[str, Any], before: dict[str, Any] | None, words: str) -> None:
    earlier = None if before is None else replace(IDLE, **before)
    why = gate.why_busy(replace(IDLE, **change), earlier)
    assert why == words if not words else words in why


def test_card_that_kopt_has_just_left_may_show_utilization_but_no_process() -> None:
    assert not gate.why_busy(replace(IDLE, utilization_pct=90.0), just_left=True)
    assert gate.why_busy(replace(IDLE, processes=(DeviceProcess(pid=1),)), just_left=True)


@pytest.mark.parametrize(("states", "checks", "idle"), [
    ([IDLE], 1, True),
    ([replace(IDLE, processes=(DeviceProcess(pid=9),)), IDLE], 2, True),
    ([replace(IDLE, memory_used=80 * GIB)] * 2, 2, True),
    ([replace(IDLE, utilization_pct=50.0)] * 3, 3, False),
])
def test_busy_card_is_checked_again_before_it_counts_as_busy(
        states: list[DeviceState], checks: int, idle: bool) -> None:
    seen = iter(states)
    pauses: list[float] = []
    why = gate.look(card(), pause=pauses.append, state=lambda _: next(seen))
    assert (not why, len(pauses)) == (idle, checks - 1)
    assert next(seen, None) is None


def test_cpu_is_never_busy() -> None:
    assert gate.look(inventory.find("cpu"), state=lambda _: pytest.fail("was asked")) == ""


def test_busy_card_is_checked_soon_then_every_ten_minutes_for_an_hour() -> None:
    timed = TimedFleet(1, lambda _, __: "in use by process 7 (train)", step_s=5.0)
    with pytest.raises(NoDeviceAvailable,
                       match=r"no idle GPU for 60:00 min: cuda:0: in use by process 7 \(train\)"):
        timed.fleet.run("verdict", lambda _: "", on_wait=timed.wait)
    assert [at for _, at in timed.looks] == [0, 15, 45, 105, 225, 465, 945, 1545, 2145, 2745, 3345]
    assert len(timed.news) == 1, "a card that stays busy gives one notice"


def test_wait_shows_a_countdown() -> None:
    timed = TimedFleet(1, lambda _, at: "" if at >= 200 else "50 % in use", step_s=1.0)
    with timed.fleet.occupy("loop", on_wait=timed.wait):
        assert timed.now == 225
    assert timed.waits[0] == ("no idle GPU; next check in 0:15 min, gives up in 60:00 min: "
                              "cuda:0: 50 % in use")
    assert timed.waits[120].startswith("no idle GPU; next check in 1:45 min, gives up in 58:00")
    assert [n.text for n in timed.news] == [
        "not used: 50 % in use; checked again in 0:15 min", "idle again: back in the pool"]


def test_card_that_is_closed_again_soon_is_checked_later_and_later() -> None:
    timed = TimedFleet(1, lambda _, __: "", step_s=5.0)
    [card_of_fleet] = timed.fleet.cards
    pauses = []
    for timed.now in (0.0, 100.0, 200.0, 300.0, 2000.0):
        timed.fleet.allocator.close(card_of_fleet, "it fell off the bus")
        pauses.append(card_of_fleet.pause_s)
    assert pauses == [15, 30, 60, 120, 15]


def test_waiting_limit_restarts_after_an_idle_card() -> None:
    timed = TimedFleet(1, lambda _, at: "" if 3000 <= at < 3601 else "50 % in use")
    with timed.fleet.occupy("loop", on_wait=timed.wait):
        pass
    timed.now = 4000.0
    with pytest.raises(NoDeviceAvailable):
        timed.fleet.run("loop", lambda _: "", on_wait=timed.wait)
    assert timed.now == 7600


def test_other_cards_take_the_work_of_a_busy_one() -> None:
    timed = TimedFleet(3, lambda device, _: "50 % in use" if device == "cuda:1" else "")
    used = [timed.fleet.run("verdict", lambda slot: slot.device.id, on_wait=timed.wait)
            for _ in range(4)]
    assert "cuda:1" not in used and not timed.waits


def test_verdicts_have_a_card_each_and_loops_share_one() -> None:
    timed = TimedFleet(2, lambda _, __: "")
    fleet = timed.fleet
    with fleet.occupy("verdict") as first, fleet.occupy("verdict") as second:
        assert first is not second
        with pytest.raises(TimeoutError):
            fleet.run("verdict", lambda _: "", on_wait=_give_up)
        with fleet.occupy("loop") as third, fleet.occupy("loop") as fourth:
            assert {third, fourth} == {first, second}
            with fleet.occupy("loop") as fifth:
                assert fifth.users["loop"] == 2


def _give_up(text: str) -> None:
    raise TimeoutError(text)


def test_card_in_use_is_checked_before_each_piece_of_work() -> None:
    timed = TimedFleet(
        1, lambda _, at: "in use by process 7 (train)" if 100 <= at < 900 else ""
    )
    with timed.fleet.occupy("loop"):
        with timed.fleet.occupy("verdict"):
            assert timed.in_use == [False, True]
        timed.now = 100.0
        with timed.fleet.occupy("verdict", on_wait=timed.wait):
            assert timed.now == 1050
    assert "process 7 (train)" in timed.news[0].text and "back" in timed.news[1].text


def test_another_kopt_is_not_a_stranger() -> None:
    timed = TimedFleet(1, lambda _, __: "")
    name = timed.fleet.cards[0].device.lock_name
    with tenants.registered(name), timed.fleet.occupy("verdict") as slot:
        assert timed.in_use == [True] and slot.device.id == "cuda:0"
    assert not tenants.is_in_use(name)
    timed = TimedFleet(1, lambda _, __: "in use by process 7 (python)")
    with pytest.raises(NoDeviceAvailable):
        timed.fleet.run("verdict", lambda _: "", on_wait=timed.wait)
    assert not tenants.is_in_use(timed.fleet.cards[0].device.lock_name), \
        "a card that was not admitted has no tenant"


def test_only_stranger_or_fault_closes_a_card_in_use() -> None:
    """Its utilization, its memory and one of its processes are kopt's."""
    device = card()
    busy = replace(IDLE, utilization_pct=100.0, memory_used=90 * GIB, throttle=("hw-thermal",),
                   processes=(DeviceProcess(pid=os.getpid(), name="python"),))
    stranger = DeviceProcess(pid=os.getppid(), name="train")

    def look(now: DeviceState) -> str:
        return gate.look(device, stranger_detector=detector, pause=lambda _: None,
                         state=lambda _: now)

    with tenants.registered(device.lock_name):
        detector = StrangerDetector(device.lock_name)
        assert look(busy) == ""
        assert look(replace(busy, processes=None)) == ""
        assert look(replace(busy, problem="NVML: GPU is lost")) == "NVML: GPU is lost"
        assert look(replace(busy, processes=(DeviceProcess(pid=os.getpid()), stranger))) == \
            f"in use by process {os.getppid()} (train)"


def test_doubtful_answer_does_not_count_while_a_stranger_runs() -> None:
    timed = TimedFleet(2, lambda device, at: "in use by process 7 (train)"
                       if device == "cuda:0" and at else "")

    def work(card: FleetDevice) -> str:
        timed.now += 1.0
        return card.device.id

    answer = timed.fleet.run("verdict", work, on_wait=timed.wait,
                             needs_recheck=lambda device_id: device_id == "cuda:0")
    assert answer == "cuda:1" and [notice.device for notice in timed.news] == ["cuda:0"]
    assert timed.in_use == [False, True, False]
