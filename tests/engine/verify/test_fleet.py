"""Which work gets which card, in which order, and what happens when cards are lost."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine import context
from engine.verify import harness_client
from engine.verify.fleet import Fleet
from engine.verify.fleet_device import (
    DeviceNotice,
    DeviceUse,
    FailsOnHealthyDevices,
    FleetDevice,
    NoDeviceAvailable,
)
from engine.verify.harness_client import HarnessFault
from harness.devices import inventory
from harness.devices.device import Device, DeviceState, Listing
from harness.devices.monitoring.tenants import StrangerDetector
from harness.errors import Cancelled, DeviceFault, InputError
from harness.isolation.zygote_client import WarmStart
from harness.requests import ErrorLine, EvaluateRequest
from harness.verdict import Verdict
from tests.support.engines import campaigns
from tests.support.programs.processes import until


def cards(count: int) -> list[tuple[Device, WarmStart]]:
    return [(Device(id=f"cuda:{index}", kind="nvidia", name="NVIDIA H200", index=index,
                    uuid=f"GPU-fleet-{index}", arch="sm_90"), WarmStart(None))
            for index in range(count)]


def lost(card: FleetDevice) -> str:
    raise HarnessFault(ErrorLine(what=f"{card.device.id} does not exist", of_device=True))


def test_check_begun_before_a_loss_does_not_reopen_the_card() -> None:
    """A verdict loses the card while a loop's check of the same card is still running."""
    looking, go_on, stop = threading.Event(), threading.Event(), threading.Event()
    news: list[DeviceNotice] = []

    def look(device: Device, *, just_left: bool,
             stranger_detector: StrangerDetector | None) -> str:
        if threading.current_thread().name == "loop":
            looking.set()
            assert go_on.wait(30)
        return ""

    fleet = Fleet(cards(1), retry_s=600.0, limit_s=3600.0, look=look, news=news.append,
                  tick_s=0.01)

    def ends(use: DeviceUse, work: Callable[[FleetDevice], str]) -> None:
        with contextlib.suppress(Cancelled):
            fleet.run(use, work, cancel=stop)

    loop = threading.Thread(name="loop", target=ends, args=("loop", lost))

    def verdict(card: FleetDevice) -> str:
        loop.start()
        assert looking.wait(30)
        return lost(card)

    judged = threading.Thread(target=ends, args=("verdict", verdict))
    judged.start()
    until(lambda: fleet.cards[0].closed)
    go_on.set()
    until(lambda: not fleet.cards[0].users["loop"])
    assert fleet.cards[0].closed == "cuda:0 does not exist"
    assert [notice.text.partition(";")[0] for notice in news] == ["not used: cuda:0 does not exist"]
    stop.set()
    loop.join()
    judged.join()


def test_longest_waiting_verdict_gets_the_next_card() -> None:
    """As many threads as cards ask for verdicts in order; one card is closed."""
    fleet = Fleet(cards(2), retry_s=600.0, limit_s=3600.0, tick_s=0.01, look=lambda device, **_: (
        "50 % in use" if device.id == "cuda:0" else ""))
    jobs: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(8):
        jobs.put(number)
    began: list[int] = []
    turn = threading.Semaphore(0)

    def judge(number: int, _: FleetDevice) -> bool:
        began.append(number)
        return turn.acquire(timeout=30)

    def work() -> None:
        while True:
            try:
                number = jobs.get_nowait()
            except queue.Empty:
                return
            fleet.run("verdict", partial(judge, number))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for count in range(1, 9):
        until(lambda: len(began) == count)  # noqa: B023
        until(lambda: bool(fleet.allocator._queue) or count == 8)  # noqa: B023
        turn.release()
    for thread in threads:
        thread.join()
    assert all(abs(number - place) <= 1 for place, number in enumerate(began)), began


@pytest.mark.slow
def test_candidate_that_loses_every_card_is_closed_and_the_campaign_finishes(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel is so hot that every card it runs on slows down."""
    monkeypatch.setitem(inventory._READERS, "nvidia", lambda requests: [
        DeviceState(device=request.id, at=0.0, utilization_pct=0.0, memory_used=0,
                    memory_total=1 << 37, processes=()) for request in requests])
    monkeypatch.setattr(context, "_fleet", lambda _, messages: Fleet(
        cards(2), retry_s=0.1, limit_s=60.0, news=messages.put, tick_s=0.01))
    real = harness_client.evaluate

    def evaluate(request: EvaluateRequest, **given: Any) -> Verdict:
        if request.trees.candidate != request.trees.incumbent:
            raise HarnessFault(ErrorLine(what="blocks had to be voided: hardware power brake",
                                         of_device=True))
        return real(replace(request, device="cpu"), **given)

    monkeypatch.setattr(harness_client, "evaluate", evaluate)
    setup = campaigns.create_with_patch(tmp_path)
    assert campaigns.run(setup).error is None
    assert campaigns.campaign(setup).state == "finished"
    assert [candidate.state for candidate in campaigns.candidates(setup)] == ["closed"]
    stage, detail = campaigns.slots(setup)["inbox-1"]
    assert stage == "failed" and "hardware power brake" in detail


@pytest.mark.parametrize(("count", "stranger", "kind"), [
    (1, False, NoDeviceAvailable), (3, False, FailsOnHealthyDevices), (3, True, NoDeviceAvailable)])
def test_work_failing_on_several_healthy_cards_is_suspect(
        count: int, stranger: bool, kind: type[NoDeviceAvailable]) -> None:
    """Not on a single card, nor if a stranger was on a card, even once, when the work ended."""
    now, work = [0.0], [0]

    def fails(card: FleetDevice) -> str:
        work[0] += 1
        return lost(card)

    def look(device: Device, *, just_left: bool,
             stranger_detector: StrangerDetector | None) -> str:
        taken = stranger and stranger_detector is not None and work[0] == 3
        return "in use by process 7" if taken else ""

    def wait(_: str) -> None:
        now[0] += 100.0

    fleet = Fleet(cards(count), retry_s=600.0, limit_s=3600.0, tick_s=0.0,
                  look=look, clock=lambda: now[0])
    with pytest.raises(NoDeviceAvailable, match="lost the device 5 times") as raised:
        fleet.run("verdict", fails, on_wait=wait)
    assert type(raised.value) is kind
    assert not fleet.allocator._queue


def box(monkeypatch: pytest.MonkeyPatch, *models: str) -> None:
    """Simulate a machine with cards of these models."""
    found = tuple(
        Device(id=f"cuda:{index}", kind="nvidia", name=name, index=index, uuid=f"GPU-0000{index}",
               memory_bytes=80 << 30, arch="sm_90") for index, name in enumerate(models))
    monkeypatch.setitem(inventory._LISTERS, "nvidia", lambda: Listing(found))


def test_campaign_resumes_only_on_its_model_of_card(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """cuda:0 may be another model after a card is lost, or on another host."""
    box(monkeypatch, "NVIDIA H100")
    setup = campaigns.create(tmp_path, gpu={"device": "cuda:0"})
    box(monkeypatch, "NVIDIA A100", "NVIDIA H100")
    with pytest.raises(DeviceFault, match="measured on NVIDIA H100, but cuda:0 is NVIDIA A100"):
        campaigns.campaigns.open_campaign(setup.workspace, setup.id)
    box(monkeypatch, "NVIDIA H100", "NVIDIA A100")
    assert campaigns.campaigns.open_campaign(setup.workspace, setup.id).device.id == "cuda:0"


@pytest.mark.parametrize("names", ["cuda:0,cuda:1", "cuda:0+cuda:1"])
def test_cards_of_two_models_are_refused(
        names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box(monkeypatch, "NVIDIA H100", "NVIDIA A100")
    with pytest.raises(InputError, match="cuda:1 is not the same model as cuda:0"):
        campaigns.create(tmp_path, gpu={"device": names})


def test_a_screening_waits_for_verdicts_and_for_other_screenings() -> None:
    fleet = Fleet(cards(2), retry_s=600.0, limit_s=3600.0, look=lambda *_, **__: "", tick_s=0.01)

    def begins(use: DeviceUse, most: float = 0.1) -> bool:
        """Return whether work of this use begins within `most` seconds."""
        stop = threading.Event()
        timer = threading.Timer(most, stop.set)
        timer.start()
        try:
            return fleet.run(use, lambda card: True, cancel=stop)
        except Cancelled:
            return False
        finally:
            timer.cancel()

    with fleet.occupy("screening") as first, fleet.occupy("screening") as second:
        assert {first.device.id, second.device.id} == {"cuda:0", "cuda:1"}
        assert not begins("screening")
        assert begins("verdict", 30.0) and begins("loop", 30.0)
    with fleet.occupy("verdict"), fleet.occupy("screening") as card:
        assert not card.users["verdict"] and not begins("screening")
        assert begins("loop", 30.0)
    with fleet.allocator.place_in_queue("verdict"):
        assert not begins("screening") and begins("loop", 30.0)
    assert begins("screening", 30.0)
