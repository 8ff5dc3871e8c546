"""Work that a stranger disturbs or that loses its card is repeated, or given up."""

from __future__ import annotations

import threading
from dataclasses import replace

import msgspec
import pytest

from engine.verify import gate
from engine.verify.fleet import MAX_LOSSES, Fleet
from engine.verify.fleet_device import FleetDevice, NoDeviceAvailable
from engine.verify.harness_client import HarnessFault
from engine.verify.verifier import VerdictRequest
from harness.devices import inventory
from harness.devices.device import Device, join_cards
from harness.devices.monitoring import tenants
from harness.devices.monitoring.interference import COMPANY, STRANGER
from harness.devices.monitoring.tenants import NOT_LISTED, StrangerDetector
from harness.errors import Cancelled, EnvironmentFault, InputError
from harness.isolation.zygote_client import WarmStart
from harness.requests import ErrorLine
from harness.verdict import Evidence, Verdict, rejected
from tests.support.devices.fleet_case import TimedFleet, card


@pytest.mark.parametrize(("stays", "used", "news"), [
    (False, ["cuda:0", "cuda:0"], "measured again: timed beside process 7"),
    (True, ["cuda:0", "cuda:1"], "in use by process 7 (train)")])
def test_work_timed_while_a_stranger_ran_is_measured_again(
        stays: bool, used: list[str], news: str) -> None:
    """Also if the stranger has left again when the card is checked."""
    timed = TimedFleet(2, lambda device, at: "in use by process 7 (train)"
                       if stays and device == "cuda:0" and at else "")
    tried: list[str] = []

    def work(card: FleetDevice) -> str:
        timed.now += 1.0
        tried.append(card.device.id)
        return "timed beside process 7" if len(tried) == 1 else ""

    assert timed.fleet.run("verdict", work, on_wait=timed.wait, void_reason=str) == ""
    assert tried == used and [notice.device for notice in timed.news] == ["cuda:0"]
    assert news in timed.news[0].text


def test_work_always_disturbed_by_a_stranger_is_given_up() -> None:
    timed = TimedFleet(1, lambda _, __: "")
    with pytest.raises(NoDeviceAvailable, match="last cause: timed beside process 7"):
        timed.fleet.run("verdict", lambda _: "timed beside process 7", on_wait=timed.wait,
                        void_reason=str)


def test_repeated_work_has_only_the_time_left() -> None:
    job = VerdictRequest(
        purpose="e2e", candidate="c", slot="e2e", candidate_tree="t", incumbent_tree="t", alpha=0.05
    )
    assert job.after(9.0) is job
    timed = msgspec.structs.replace(job, left_s=60.0)
    assert (timed.after(20.0).left_s, timed.after(70.0).left_s) == (40.0, 0.0)


def test_failed_verdict_or_one_beside_another_process_needs_recheck() -> None:
    alone = Verdict(valid=True, correct=True)
    beside = replace(alone, evidence=(Evidence(kind=COMPANY, detail="process 7"),))
    unknown = replace(alone, evidence=(Evidence(kind="foreign", detail=NOT_LISTED),))
    wrong = replace(alone, correct=False)
    assert [gate.needs_recheck(verdict) for verdict in (alone, beside, unknown, wrong,
                                                        rejected("no"))] == [
        False, True, False, True, True]
    stranger = replace(beside, evidence=(*beside.evidence, Evidence(
        kind=STRANGER, detail="timed beside process 7, of no kopt")))
    assert [gate.void_reason(verdict) for verdict in (alone, beside, stranger)] == [
        "", "", "timed beside process 7, of no kopt"]


def lost(what: str = "cuda:0 does not exist") -> HarnessFault:
    return HarnessFault(ErrorLine(what=what, of_device=True))


def test_work_of_a_lost_card_is_repeated_on_another() -> None:
    timed = TimedFleet(2, lambda _, __: "")
    tried: list[str] = []

    def work(card: FleetDevice) -> str:
        tried.append(card.device.id)
        if card.device.id == "cuda:0":
            raise lost()
        return "a verdict"

    assert timed.fleet.run("verdict", work, on_wait=timed.wait) == "a verdict"
    assert tried == ["cuda:0", "cuda:1"]
    assert [n.device for n in timed.news] == ["cuda:0"]
    assert timed.fleet.run("verdict", work, on_wait=timed.wait) and tried[2:] == ["cuda:1"]


def test_fault_unrelated_to_cards_closes_none() -> None:
    timed = TimedFleet(2, lambda _, __: "")

    def work(card: FleetDevice) -> str:
        raise HarnessFault(ErrorLine(what="no space left"))

    timed.fleet.cards[0].device = inventory.find("cpu")
    with pytest.raises(HarnessFault, match="no space left"):
        timed.fleet.run("verdict", work)
    assert not timed.news


def test_work_that_loses_card_after_card_is_given_up() -> None:
    timed = TimedFleet(1, lambda _, __: "", step_s=600.0)

    def work(card: FleetDevice) -> str:
        raise lost("NVML: GPU is lost")

    with pytest.raises(NoDeviceAvailable, match=f"lost the device {MAX_LOSSES} times"):
        timed.fleet.run("verdict", work, on_wait=timed.wait)


def test_card_without_its_lock_is_closed_and_reopened() -> None:
    faults = iter([EnvironmentFault("cannot open the device lock"), None])

    def busy(_: str, __: float) -> str:
        if fault := next(faults):
            raise fault
        return ""

    timed = TimedFleet(1, busy)
    with timed.fleet.occupy("verdict", on_wait=timed.wait) as slot:
        assert timed.now == 20 and slot.device.id == "cuda:0"
    assert "cannot open the device lock" in timed.news[0].text


def test_error_during_check_releases_the_card() -> None:
    timed = TimedFleet(1, lambda _, at: "" if at else 1 // 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        timed.fleet.run("verdict", lambda _: "")
    timed.now = 1.0
    assert timed.fleet.run("verdict", lambda _: "done") == "done"


def test_each_card_of_a_joined_device_is_checked() -> None:
    pair = join_cards([card(0), card(1)])
    has_detector: dict[str, bool] = {}

    def look(device: Device, *, just_left: bool,
             stranger_detector: StrangerDetector | None) -> str:
        has_detector[device.id] = stranger_detector is not None
        return ""

    fleet = Fleet([(pair, WarmStart(None))], retry_s=1.0, limit_s=1.0, look=look)
    with tenants.registered(pair.lock_names[0]), fleet.occupy("verdict"):
        pass
    assert has_detector == {card.id: card.lock_name == pair.lock_names[0] for card in pair.cards}


def test_card_joins_a_device_once() -> None:
    device = card(0)
    with pytest.raises(InputError, match="listed twice"):
        join_cards([device, device])


def test_wait_for_a_card_ends_with_the_campaign() -> None:
    timed, ended = TimedFleet(1, lambda _, __: "50 % in use"), threading.Event()

    def wait(text: str) -> None:
        ended.set()

    with pytest.raises(Cancelled):
        timed.fleet.run("loop", lambda _: "", on_wait=wait, cancel=ended)
    assert not timed.fleet.cards[0].users.total()
