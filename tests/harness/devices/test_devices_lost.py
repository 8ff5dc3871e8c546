"""A card that is lost or hangs is that card's fault alone: the others stay and answer."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pynvml
import pytest

from engine.verify import gate
from harness.devices import device, inventory, nvidia, nvml
from harness.devices.call_timeout import BoundedCaller, CallTimeout
from harness.devices.device import Device
from harness.errors import DeviceFault
from tests.harness.devices.test_devices import RecordedNvml, forget, recorded
from tests.support.processes import until

__all__ = ["forget"]
HUNG_S = 0.3
UNKNOWN, LOST = pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_GPU_IS_LOST
NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION


class Machine(RecordedNvml):
    """Three idle cards, some calls about which fail or hang until `free` is set."""

    def __init__(self, mig: bool = False) -> None:
        super().__init__([{**recorded()[0], "uuid": f"GPU-{index}d0c9e42-ed27-4aa0"}
                          for index in range(3)], mig)
        self.fails: dict[tuple[str, str], int] = {}
        self.hangs: set[tuple[str, str]] = set()
        self.free = threading.Event()
        self.hung: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if not name.startswith("nvmlDevice") or not callable(found):
            return found

        def call(of: Any = None, *arguments: Any) -> Any:
            about = of["uuid"] if isinstance(of, dict) else \
                self.cards[of]["uuid"] if isinstance(of, int) else of
            if (name[10:], about) in self.hangs:
                self.hung.append(about)
                self.free.wait(60)
            if code := self.fails.get((name[10:], about)):
                raise pynvml.NVMLError(code)
            return found(*(() if of is None else (of, *arguments)))

        return call

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: dict[str, Any], place: int) -> Any:
        about = f"MIG-{place}-{card['uuid']}"
        if code := self.fails.get(("GetMigDeviceHandleByIndex", about)):
            raise pynvml.NVMLError(code)
        return {**card, "uuid": about}

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        return {**super().nvmlDeviceGetHandleByUUID(uuid[uuid.index("GPU-"):]), "uuid": uuid}

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        pass


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "_patience", defaultdict(BoundedCaller))
    monkeypatch.setattr(nvidia, "_patience", {}, raising=False)
    monkeypatch.setattr(nvidia, "CARD_S", HUNG_S, raising=False)
    monkeypatch.setattr(inventory, "STATE_S", HUNG_S)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine()
    monkeypatch.setattr(nvml, "load", lambda: made)
    yield made
    made.free.set()
    assert until(lambda: not waiting()), "no thread is left once the driver answers"


def cards() -> list[Device]:
    return [one for one in inventory.inventory() if one.kind == "nvidia"]


def waiting() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "kopt-patience"]


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize(("call", "code", "says", "tells_uuid"), [
    ("GetHandleByIndex", LOST, "GPU is lost", False),
    ("GetHandleByIndex", NO_PERMISSION, "Insufficient Permissions", False),
    ("GetMigMode", LOST, "GPU is lost", True),
    ("GetName", UNKNOWN, "Unknown Error", True),
    ("GetUUID", LOST, "GPU is lost", False),
    ("GetMemoryInfo", LOST, "GPU is lost", True)])
def test_a_lost_card_keeps_its_id_and_leaves_the_others_as_they_are(
        call: str, code: int, says: str, tells_uuid: bool, index: int, machine: Machine) -> None:
    before = cards()
    machine.fails[call, before[index].uuid] = code
    after = cards()
    assert [one.id for one in after] == ["cuda:0", "cuda:1", "cuda:2"]
    lost = after.pop(index)
    healthy = [one for one in before if one.index != index]
    assert after == healthy
    assert (lost.index, lost.uuid) == (index, before[index].uuid if tells_uuid else "")
    for name in (f"cuda:{index}", before[index].uuid):
        with pytest.raises(DeviceFault, match=rf"{name} .*{says}"):
            inventory.find(name)
    assert [inventory.find(one.id) for one in healthy] == healthy
    assert [inventory.find(one.uuid[:12]) for one in healthy] == healthy
    assert inventory.find("auto") in healthy
    same = inventory.same_model(healthy[0])
    assert same[0] == healthy[0] and lost not in same
    assert all(says in one.problem for one in inventory.states([lost]) if not tells_uuid)
    assert not any(one.problem for one in inventory.states(healthy))
    machine.fails.clear()
    assert cards() == before, "it may come back"


@pytest.mark.parametrize(("visible", "hidden"), [
    ("1", [False, True]), ("2,1", [False, False]), ("0,1", [False, True]), ("", [True, True])])
def test_indices_of_visible_devices_are_the_drivers_with_a_card_lost(
        visible: str, hidden: list[bool], machine: Machine,
        monkeypatch: pytest.MonkeyPatch) -> None:
    machine.fails["GetHandleByIndex", machine.cards[0]["uuid"]] = LOST
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    lost, *others = cards()
    assert "GPU is lost" in lost.unusable
    assert ["hides it" in one.unusable for one in others] == hidden


def test_of_a_lost_card_with_mig_the_instances_are_said_to_be_lost(machine: Machine) -> None:
    machine.mig = True
    before = cards()
    assert len(before) == 9
    machine.fails["GetHandleByIndex", machine.cards[1]["uuid"]] = LOST
    after = cards()
    assert [one for one in after if one.index != 1] == [one for one in before if one.index != 1]
    assert [one.id for one in after if one.index == 1] == ["cuda:1"]
    with pytest.raises(DeviceFault, match=r"cuda:1:0 .*cuda:1 \(NVML: GPU is lost\)"):
        inventory.find("cuda:1:0")


@pytest.mark.parametrize(("call", "code", "left"), [
    ("GetMigDeviceHandleByIndex", LOST, "GPU is lost"), ("GetName", LOST, "GPU is lost"),
    ("GetMigDeviceHandleByIndex", pynvml.NVML_ERROR_NOT_FOUND, None)])
def test_an_instance_that_fails_leaves_its_card_and_its_sibling(
        call: str, code: int, left: str | None, machine: Machine) -> None:
    machine.mig = True
    before = cards()
    machine.fails[call, before[1].uuid] = code
    after = {one.id: one for one in cards()}
    assert left is None or left in after["cuda:0:0"].unusable
    assert {one for one in before if one.id != "cuda:0:0"} == {
        one for one in after.values() if one.id != "cuda:0:0"}
    assert ("cuda:0:0" in after) == (left is not None)


def test_a_driver_that_cannot_count_its_cards_is_told_with_a_card_that_is_asked_for(
        machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = device.Listing(problem="NVML: Driver Not Loaded")
    monkeypatch.setitem(inventory._LISTERS, "nvidia", lambda: listing)
    with pytest.raises(DeviceFault, match=r"cuda:0 is not there .*NVML: Driver Not Loaded"):
        inventory.find("cuda:0")


def test_a_card_that_hangs_while_it_is_listed_is_marked_and_asked_once(machine: Machine) -> None:
    before = cards()
    machine.hangs.add(("GetMemoryInfo", before[0].uuid))
    for _ in range(4):
        began = time.monotonic()
        hung, *others = cards()
        assert time.monotonic() - began < HUNG_S + 2
        assert hung.id == "cuda:0" and "no answer since" in hung.unusable
        assert others == before[1:]
    assert machine.hung == [before[0].uuid] and len(waiting()) == 1
    assert inventory.find("cuda:1") == before[1]
    with pytest.raises(DeviceFault, match="cuda:0 cannot be used: no answer since"):
        inventory.find("cuda:0")
    machine.hangs.clear()
    machine.free.set()
    assert until(lambda: cards() == before, 20)


@pytest.mark.parametrize("stuck", [{0}, {1}, {0, 2}, {0, 1, 2}])
def test_a_hanging_question_about_a_card_silences_no_other(
        stuck: set[int], machine: Machine) -> None:
    all_of = cards()
    machine.hangs |= {("GetUtilizationRates", all_of[index].uuid) for index in stuck}
    began = time.monotonic()
    for _ in range(4):
        now = inventory.states(all_of)
        assert ["no answer since" in one.problem for one in now] == [
            one.index in stuck for one in all_of]
    assert time.monotonic() - began < 2 * HUNG_S + 1, "they are waited for at once, and once"
    for one in all_of:
        assert bool(gate.look(one, pause=lambda _: None)) == (one.index in stuck)
    assert sorted(machine.hung) == sorted(all_of[index].uuid for index in stuck)
    assert len(waiting()) == len(stuck), "a card that hangs holds one thread"
    machine.hangs.clear()
    machine.free.set()
    assert until(lambda: not any(one.problem for one in inventory.states(all_of)), 20)


def test_instances_of_one_card_are_one_question(machine: Machine) -> None:
    machine.mig = True
    all_of = cards()
    machine.hangs |= {("GetUtilizationRates", one.uuid) for one in all_of[:3]}
    for _ in range(2):
        assert [bool(one.problem) for one in inventory.states(all_of)] == [True] * 3 + [False] * 6
        assert [bool(inventory.state(one).problem) for one in all_of[:3]] == [True] * 3
    assert len(machine.hung) == len(waiting()) == 1


def test_many_who_ask_about_a_card_that_hangs_hold_one_thread_of_the_driver(
        machine: Machine) -> None:
    stuck, *others = cards()
    machine.hangs.add(("GetUtilizationRates", stuck.uuid))
    problems: list[str] = []

    def ask(card: Device) -> Callable[[], None]:
        return lambda: problems.append(inventory.state(card).problem)

    who = [threading.Thread(target=ask(card)) for card in [stuck] * 8 + others * 4]
    for one in who:
        one.start()
    for one in who:
        one.join(20)
    assert len(problems) == 16 and sum(map(bool, problems)) == 8
    assert len(machine.hung) == 1 and len(waiting()) == 1


def test_who_asks_while_another_is_answered_gets_an_answer_made_after_the_question() -> None:
    patience: BoundedCaller[int] = BoundedCaller()
    free = threading.Event()
    early = patience.ask(lambda: (free.wait(60) and 1) or 1, 20)
    late = [patience.ask(lambda number=number: number, 20)  # type: ignore[misc]
            for number in (2, 3)]
    free.set()
    assert [late[1](), late[0](), early()] == [3, 2, 1]


def test_who_asks_late_of_a_call_that_hangs_waits_no_longer_than_the_first() -> None:
    patience: BoundedCaller[bool] = BoundedCaller()
    free = threading.Event()
    first = patience.ask(lambda: free.wait(60), 0.4)
    with pytest.raises(CallTimeout) as silence:
        first()
    began = time.monotonic()
    for _ in range(3):
        with pytest.raises(CallTimeout) as again:
            patience.call(lambda: True, 0.4)
        assert again.value.since == silence.value.since
    assert time.monotonic() - began < 0.3
    free.set()
    assert until(lambda: not waiting())
    assert patience.call(lambda: True, 5)
