"""Verdicts on several cards: threads, joined devices, and what a campaign shows of its wait."""

from __future__ import annotations

import queue
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from engine.campaign import judged_target
from engine.context import CampaignStopped, EngineContext
from engine.journal import lease
from engine.journal.write import Writer
from engine.task import SlotProgress
from engine.verify import gate
from engine.verify.fleet import Fleet
from engine.verify.fleet_device import DeviceNotice, FleetDevice
from engine.verify.verifier import VerdictRequest, VerdictResult, Verifier
from harness.devices import inventory
from harness.devices.device import Device, DeviceProcess, DeviceState, join_cards
from harness.devices.monitoring import tenants
from harness.errors import DeviceFault
from harness.isolation.zygote_client import WarmStart
from tests.support.devices.fleet_case import IDLE, TimedFleet, card
from tests.support.engines import campaigns


def test_verdicts_of_many_threads_never_share_a_card() -> None:
    timed, inside = TimedFleet(3, lambda _, __: ""), list[str]()
    clash, guard = list[str](), threading.Lock()

    def work(card: FleetDevice) -> str:
        with guard:
            clash.extend([card.device.id] * (card.device.id in inside))
            inside.append(card.device.id)
        with guard:
            inside.remove(card.device.id)
        return card.device.id

    def many() -> None:
        for _ in range(50):
            timed.fleet.run("verdict", work)

    threads = [threading.Thread(target=many) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not clash and not any(card.users.total() for card in timed.fleet.cards)


def test_joined_device_is_idle_when_each_card_is() -> None:
    pair = join_cards([card(0), card(1)])
    busy = {"cuda:0": IDLE, "cuda:1": replace(IDLE, processes=(DeviceProcess(pid=9),))}
    checked_ids: list[str] = []

    def state(device: Device) -> DeviceState:
        checked_ids.append(device.id)
        return busy[device.id]

    assert "process 9" in gate.look(pair, pause=lambda _: None, state=state)
    assert checked_ids == ["cuda:0", "cuda:1"] * 3
    busy["cuda:1"] = IDLE
    assert gate.look(pair, pause=lambda _: None, state=state) == ""


def test_each_card_of_a_device_is_registered() -> None:
    pair = join_cards([card(0), card(1)])
    fleet = Fleet([(pair, WarmStart(None))], retry_s=1.0, limit_s=1.0, look=lambda *_, **__: "")
    with fleet.occupy("verdict"):
        assert all(map(tenants.is_in_use, pair.lock_names))
    assert not any(map(tenants.is_in_use, pair.lock_names))


@pytest.mark.parametrize(("count", "size", "groups"), [
    (1, 1, ["cuda:0"]), (3, 1, ["cuda:0", "cuda:1", "cuda:2"]), (2, 2, ["cuda:0+cuda:1"]),
    (5, 2, ["cuda:0+cuda:1", "cuda:2+cuda:3"]), (4, 4, ["cuda:0+cuda:1+cuda:2+cuda:3"]),
])
def test_cards_are_joined_for_a_multi_card_target(count: int, size: int,
                                                  groups: list[str]) -> None:
    devices = judged_target.group_cards([card(index) for index in range(count)], size)
    assert [device.id for device in devices] == groups
    assert [len(device.cards) for device in devices] == [size] * len(groups)
    for device in devices:
        assert device.visible_env["CUDA_VISIBLE_DEVICES"].split(",") == [
            single.uuid for single in device.cards]
        assert list(device.lock_names) == sorted(single.lock_name for single in device.cards)
        assert device.cards[0].id == "cuda:0" or device is not devices[0]


@pytest.mark.parametrize("cards", [[inventory.find("cpu")], [card(0)]])
def test_target_that_needs_more_cards_than_there_are_is_refused(cards: list[Device]) -> None:
    with pytest.raises(DeviceFault, match="the target needs 2 GPUs of one model"):
        judged_target.group_cards(cards, 2)


@pytest.mark.slow
def test_real_verdict_comes_from_the_other_device_after_a_loss(tmp_path: Path) -> None:
    """One of two devices does not exist: its harness process reports it, and the CPU is used."""
    setup = campaigns.create(tmp_path)
    gone = Device(id="cuda:7", kind="nvidia", name="gone", uuid="GPU-gone", arch="sm_90")
    setup = replace(setup, devices=(gone, *setup.devices))
    messages: queue.Queue[object] = queue.Queue()
    fleet = Fleet(
        [(device, WarmStart(None)) for device in setup.devices],
        retry_s=600.0,
        limit_s=3600.0,
        news=messages.put,
        look=lambda *_, **__: "",  # the gate passes: only the harness process finds the loss
    )
    verifier = Verifier(setup, messages, fleet)
    tree = setup.repo.tree_of(setup.repo.base)
    try:
        verifier.submit(VerdictRequest(purpose="baseline", candidate="baseline", slot="baseline",
                            candidate_tree=tree, incumbent_tree=tree, alpha=0.2,
                            always_time=True))
        notices: list[object] = []
        while not notices or not isinstance(notices[-1], VerdictResult):
            notices.append(messages.get(timeout=200))
    finally:
        verifier.stop()
        fleet.close()
    assert isinstance(notices[-1], VerdictResult) and notices[-1].verdict is not None
    assert notices[-1].verdict.correct
    assert [notice.device for notice in notices if isinstance(notice, DeviceNotice)] == ["cuda:7"]


def test_campaign_phase_shows_how_far_a_verdict_without_a_slot_is(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path)
    tree = setup.repo.tree_of(setup.repo.base)
    job = VerdictRequest(
        purpose="baseline",
        candidate="baseline",
        slot="baseline",
        candidate_tree=tree,
        incumbent_tree=tree,
        alpha=0.2,
    )
    writer = Writer(setup.workspace)
    context = EngineContext(setup, writer, lease.acquire(writer, setup.id), threading.Event())
    try:
        writer.set_campaign(setup.id, kind="campaign.state", payload={}, phase="baseline")
        context.messages.put(SlotProgress(slot="baseline", stage="waiting", detail="no idle GPU"))
        assert context.wait() is None
        assert campaigns.campaign(setup).phase == "no idle GPU"
        writer.set_campaign(setup.id, kind="campaign.state", payload={}, phase="BASELINE")
        phases: list[str] = []
        context.on_controls = lambda: phases.append(campaigns.campaign(setup).phase)
        assert context.verdict(job).correct
        assert any(phase.startswith("BASELINE: ") for phase in phases), phases
        assert campaigns.campaign(setup).phase == "BASELINE"
    finally:
        context.close()
        writer.close()


def test_cancelled_work_raises_campaign_stopped(tmp_path: Path) -> None:
    """A stop that kills a format command is no reason to refuse the candidate."""
    setup, stop = campaigns.create(tmp_path), threading.Event()
    writer = Writer(setup.workspace)
    context = EngineContext(setup, writer, lease.acquire(writer, setup.id), stop)
    try:
        with pytest.raises(CampaignStopped):
            context.run_in_thread(stop.set)
    finally:
        context.close()
        writer.close()


def test_manifests_devices_are_taken_once_and_missing_ones_left_out(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path, gpu={"device": "cpu, cpu,cuda:99"})
    assert [device.id for device in setup.devices] == ["cpu"]
