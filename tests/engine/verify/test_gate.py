"""The gate and the fleet: which cards may be used, who waits how long, what a lost card costs."""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.campaign import judged_target
from engine.context import CampaignStopped, EngineContext
from engine.journal import lease
from engine.journal.write import Writer
from engine.task import SlotProgress
from engine.verify import gate
from engine.verify.fleet import MAX_LOSSES, Fleet
from engine.verify.fleet_device import DeviceNotice, FleetDevice, NoDeviceAvailable
from engine.verify.harness_client import HarnessFault
from engine.verify.verifier import VerdictRequest, VerdictResult, Verifier
from harness.devices import inventory
from harness.devices.device import Device, DeviceProcess, DeviceState, join_cards
from harness.devices.monitoring import tenants
from harness.devices.monitoring.interference import COMPANY, STRANGER
from harness.devices.monitoring.tenants import NOT_LISTED, StrangerDetector
from harness.errors import Cancelled, DeviceFault, EnvironmentFault, InputError
from harness.isolation.zygote_client import WarmStart
from harness.requests import ErrorLine
from harness.verdict import Evidence, Verdict, rejected
from tests.support import campaigns

GIB = 1 << 30
IDLE = DeviceState(device="cuda:0", at=0.0, utilization_pct=0.0, memory_used=GIB // 2,
                   memory_total=141 * GIB, processes=())
names = itertools.count()


def card(index: int = 0) -> Device:
    """Return a card with a lock of its own."""
    return Device(id=f"cuda:{index}", kind="nvidia", name="NVIDIA H200", index=index,
                  uuid=f"GPU-test-{next(names)}", memory_bytes=141 * GIB, arch="sm_90")


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
     "process 41 (python) computes there"),
    ({"processes": (DeviceProcess(pid=41), DeviceProcess(pid=42))}, None,
     "process 41 and 1 more computes"),
    ({"memory_used": 14 * GIB}, None, ""),
    ({"memory_used": 80 * GIB}, None, "80.0 GiB of its memory in use"),
    ({"memory_used": 80 * GIB}, {"memory_used": 80 * GIB}, ""),
    ({"memory_used": 80 * GIB}, {"memory_used": 79 * GIB}, "and it changes"),
    ({"memory_used": 80 * GIB}, {"memory_used": 81 * GIB}, "and it changes"),
    ({"memory_used": 80 * GIB, "memory_total": None}, None, ""),
    ({"problem": "NVML: GPU is lost"}, None, "GPU is lost"),
    ({"throttle": ("hw-thermal",)}, None, "slowed down: hw-thermal"),
    ({"throttle": ("sw-power-cap", "idle")}, None, ""),
])
def test_card_is_idle_without_processes_and_with_low_or_stable_memory(
        change: dict[str, Any], before: dict[str, Any] | None, words: str) -> None:
    earlier = None if before is None else replace(IDLE, **before)
    why = gate.why_busy(replace(IDLE, **change), earlier)
    assert why == words if not words else words in why


def test_just_left_card_may_show_utilization_but_no_process() -> None:
    assert not gate.why_busy(replace(IDLE, utilization_pct=90.0), just_left=True)
    assert gate.why_busy(replace(IDLE, processes=(DeviceProcess(pid=1),)), just_left=True)


@pytest.mark.parametrize(("states", "looks", "idle"), [
    ([IDLE], 1, True),
    ([replace(IDLE, processes=(DeviceProcess(pid=9),)), IDLE], 2, True),
    ([replace(IDLE, memory_used=80 * GIB)] * 2, 2, True),
    ([replace(IDLE, utilization_pct=50.0)] * 3, 3, False),
])
def test_busy_card_is_checked_again_before_it_counts_as_busy(
        states: list[DeviceState], looks: int, idle: bool) -> None:
    seen = iter(states)
    pauses: list[float] = []
    why = gate.look(card(), pause=pauses.append, state=lambda _: next(seen))
    assert (not why, len(pauses)) == (idle, looks - 1)
    assert next(seen, None) is None


def test_cpu_is_never_busy() -> None:
    assert gate.look(inventory.find("cpu"), state=lambda _: pytest.fail("was asked")) == ""


class TimedFleet:
    """A fleet whose cards are busy as `busy` returns; its clock advances while it waits."""

    def __init__(self, count: int, busy: Callable[[str, float], str], step_s: float = 10.0,
                 **limits: float) -> None:
        self.now, self.step_s, self.waits = 0.0, step_s, list[str]()
        self.news: list[DeviceNotice] = []
        self.looks: list[tuple[str, float]] = []
        self.in_use: list[bool] = []
        """Per check: whether other kopt processes already use the card."""
        self.fleet = Fleet([(card(i), WarmStart(None)) for i in range(count)],
                           **{"retry_s": 600.0, "limit_s": 3600.0, **limits},
                           news=self.news.append, look=self._look, clock=lambda: self.now,
                           tick_s=0.0)
        self._busy = busy

    def _look(self, device: Device, *, just_left: bool,
              stranger_detector: StrangerDetector | None) -> str:
        self.looks.append((device.id, self.now))
        self.in_use.append(stranger_detector is not None)
        return self._busy(device.id, self.now)

    def wait(self, text: str) -> None:
        self.waits.append(text)
        self.now += self.step_s


def test_busy_card_is_checked_every_ten_minutes_for_an_hour() -> None:
    timed = TimedFleet(1, lambda _, __: "process 7 (train) computes there")
    with pytest.raises(NoDeviceAvailable,
                       match=r"no idle GPU for 60:00 min: cuda:0: process 7 \(train\)"):
        timed.fleet.run("verdict", lambda _: "", on_wait=timed.wait)
    assert [at for _, at in timed.looks] == [0, 600, 1200, 1800, 2400, 3000, 3600]
    assert len(timed.news) == 1, "a card that stays busy gives one notice"


def test_wait_shows_a_countdown() -> None:
    timed = TimedFleet(1, lambda _, at: "" if at >= 600 else "50 % in use", step_s=1.0)
    with timed.fleet.occupy("loop", on_wait=timed.wait):
        assert timed.now == 600
    assert timed.waits[0] == ("no idle GPU, looks again in 10:00 min, gives up in 60:00 min: "
                              "cuda:0: 50 % in use")
    assert timed.waits[75].startswith("no idle GPU, looks again in 8:45 min, gives up in 58:45 min")
    assert [n.text for n in timed.news] == [
        "not used: 50 % in use; checked again in 10:00 min", "idle again: back in the pool"]


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
        1, lambda _, at: "process 7 (train) computes there" if 100 <= at < 900 else ""
    )
    with timed.fleet.occupy("loop"):
        with timed.fleet.occupy("verdict"):
            assert timed.in_use == [False, True]
        timed.now = 100.0
        with timed.fleet.occupy("verdict", on_wait=timed.wait):
            assert timed.now == 1300
    assert "process 7 (train)" in timed.news[0].text and "back" in timed.news[1].text


def test_another_kopt_is_no_stranger() -> None:
    timed = TimedFleet(1, lambda _, __: "")
    name = timed.fleet.cards[0].device.lock_name
    with tenants.registered(name), timed.fleet.occupy("verdict") as slot:
        assert timed.in_use == [True] and slot.device.id == "cuda:0"
    assert not tenants.is_in_use(name)
    timed = TimedFleet(1, lambda _, __: "process 7 (python) computes there")
    with pytest.raises(NoDeviceAvailable):
        timed.fleet.run("verdict", lambda _: "", on_wait=timed.wait)
    assert not tenants.is_in_use(timed.fleet.cards[0].device.lock_name), \
        "a card that was not admitted has no tenant"


def test_only_stranger_or_fault_closes_a_card_in_use() -> None:
    """Its utilization and memory are ours, and so is one of the processes."""
    one = card()
    busy = replace(IDLE, utilization_pct=100.0, memory_used=90 * GIB, throttle=("hw-thermal",),
                   processes=(DeviceProcess(pid=os.getpid(), name="python"),))
    stranger = DeviceProcess(pid=os.getppid(), name="train")

    def look(now: DeviceState) -> str:
        return gate.look(one, stranger_detector=near, pause=lambda _: None, state=lambda _: now)

    with tenants.registered(one.lock_name):
        near = StrangerDetector(one.lock_name)
        assert look(busy) == ""
        assert look(replace(busy, processes=None)) == ""
        assert look(replace(busy, problem="NVML: GPU is lost")) == "NVML: GPU is lost"
        assert look(replace(busy, processes=(DeviceProcess(pid=os.getpid()), stranger))) == \
            f"process {os.getppid()} (train) computes there"


def test_doubtful_answer_does_not_count_while_a_stranger_runs() -> None:
    timed = TimedFleet(2, lambda device, at: "process 7 (train) computes there"
                       if device == "cuda:0" and at else "")

    def work(card: FleetDevice) -> str:
        timed.now += 1.0
        return card.device.id

    answer = timed.fleet.run("verdict", work, on_wait=timed.wait,
                            needs_recheck=lambda device_id: device_id == "cuda:0")
    assert answer == "cuda:1" and [notice.device for notice in timed.news] == ["cuda:0"]
    assert timed.in_use == [False, True, False]


@pytest.mark.parametrize(("stays", "used", "news"), [
    (False, ["cuda:0", "cuda:0"], "measured again: timed beside process 7"),
    (True, ["cuda:0", "cuda:1"], "process 7 (train) computes there")])
def test_work_timed_while_a_stranger_ran_is_measured_again(
        stays: bool, used: list[str], news: str) -> None:
    """Also if the stranger has left again when the card is checked."""
    timed = TimedFleet(2, lambda device, at: "process 7 (train) computes there"
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


def test_verdict_never_alone_on_its_card_needs_recheck() -> None:
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


def lost(what: str = "cuda:0 is not there") -> HarnessFault:
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
        assert timed.now == 600 and slot.device.id == "cuda:0"
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
    one = card(0)
    with pytest.raises(InputError, match="named twice"):
        join_cards([one, one])


def test_wait_for_a_card_ends_with_the_campaign() -> None:
    timed, ended = TimedFleet(1, lambda _, __: "50 % in use"), threading.Event()

    def wait(text: str) -> None:
        ended.set()

    with pytest.raises(Cancelled):
        timed.fleet.run("loop", lambda _: "", on_wait=wait, cancel=ended)
    assert not timed.fleet.cards[0].users.total()


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
def test_target_with_too_many_cards_is_refused(cards: list[Device]) -> None:
    with pytest.raises(DeviceFault, match="the target needs 2 GPUs of one model"):
        judged_target.group_cards(cards, 2)


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
        look=lambda *_, **__: "",
    )  # the card is lost after the gate
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


def test_campaign_phase_shows_what_it_waits_for(tmp_path: Path) -> None:
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
        assert context.verdict(job).correct
        assert campaigns.campaign(setup).phase == "baseline"
    finally:
        context.close()
        writer.close()


def test_cancelled_work_gives_no_answer(tmp_path: Path) -> None:
    """A format command that a stop has killed does not refuse its candidate."""
    setup, stop = campaigns.create(tmp_path), threading.Event()
    writer = Writer(setup.workspace)
    context = EngineContext(setup, writer, lease.acquire(writer, setup.id), stop)
    try:
        with pytest.raises(CampaignStopped):
            context.run_in_thread(stop.set)
    finally:
        context.close()
        writer.close()


def test_manifest_may_name_several_devices(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path, gpu={"device": "cpu, cpu,cuda:99"})
    assert [device.id for device in setup.devices] == ["cpu"]
