"""A card that is lost or hangs is marked unusable and does not affect the other cards."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pynvml
import pytest

from engine.verify import gate
from harness.devices import device, inventory, nvidia
from harness.devices.call_timeout import BoundedCaller, CallTimeout
from harness.devices.device import Device
from harness.errors import DeviceFault
from tests.support.devices.nvml_case import RecordedNvml, no_known_states, recorded
from tests.support.programs.processes import until

__all__ = ["no_known_states"]
HUNG_S = 0.3
UNKNOWN, LOST = pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_GPU_IS_LOST
NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION


class Machine(RecordedNvml):
    """Three idle cards; chosen calls fail, or hang until `free` is set."""

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
            uuid = of["uuid"] if isinstance(of, dict) else \
                self.cards[of]["uuid"] if isinstance(of, int) else of
            if (name[10:], uuid) in self.hangs:
                self.hung.append(uuid)
                self.free.wait(60)
            if code := self.fails.get((name[10:], uuid)):
                raise pynvml.NVMLError(code)
            return found(*(() if of is None else (of, *arguments)))

        return call

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: dict[str, Any], place: int) -> Any:
        uuid = f"MIG-{place}-{card['uuid']}"
        if code := self.fails.get(("GetMigDeviceHandleByIndex", uuid)):
            raise pynvml.NVMLError(code)
        return {**card, "uuid": uuid}

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        return {**super().nvmlDeviceGetHandleByUUID(uuid[uuid.index("GPU-"):]), "uuid": uuid}

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        pass


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "_state_callers", defaultdict(BoundedCaller))
    monkeypatch.setattr(nvidia, "_list_callers", {})
    monkeypatch.setattr(nvidia, "CARD_S", HUNG_S)
    monkeypatch.setattr(inventory, "STATE_S", HUNG_S)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    fake = Machine()
    monkeypatch.setattr(nvidia, "load", lambda: fake)
    yield fake
    fake.free.set()
    assert until(lambda: not driver_threads()), "no thread is left after the driver answers"


def cards() -> list[Device]:
    return [card for card in inventory.inventory() if card.kind == "nvidia"]


def driver_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kopt-bounded-call"]


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize(("call", "code", "message", "has_uuid"), [
    ("GetHandleByIndex", LOST, "GPU is lost", False),
    ("GetHandleByIndex", NO_PERMISSION, "Insufficient Permissions", False),
    ("GetMigMode", LOST, "GPU is lost", True),
    ("GetName", UNKNOWN, "Unknown Error", True),
    ("GetUUID", LOST, "GPU is lost", False),
    ("GetMemoryInfo", LOST, "GPU is lost", True)])
def test_lost_card_keeps_its_id_and_leaves_the_others_usable(
        call: str, code: int, message: str, has_uuid: bool, index: int, machine: Machine) -> None:
    before = cards()
    machine.fails[call, before[index].uuid] = code
    after = cards()
    assert [card.id for card in after] == ["cuda:0", "cuda:1", "cuda:2"]
    lost = after.pop(index)
    healthy = [card for card in before if card.index != index]
    assert after == healthy
    assert (lost.index, lost.uuid) == (index, before[index].uuid if has_uuid else "")
    for name in (f"cuda:{index}", before[index].uuid):
        with pytest.raises(DeviceFault, match=rf"{name} .*{message}"):
            inventory.find(name)
    assert [inventory.find(card.id) for card in healthy] == healthy
    assert [inventory.find(card.uuid[:12]) for card in healthy] == healthy
    assert inventory.find("auto") in healthy
    same = inventory.same_model(healthy[0])
    assert same[0] == healthy[0] and lost not in same
    assert all(message in card.problem for card in inventory.states([lost]) if not has_uuid)
    assert not any(card.problem for card in inventory.states(healthy))
    machine.fails.clear()
    assert cards() == before, "the card may come back"


@pytest.mark.parametrize(("visible", "hidden"), [
    ("1", [False, True]), ("2,1", [False, False]), ("0,1", [False, True]), ("", [True, True])])
def test_visible_device_indices_count_lost_cards(
        visible: str, hidden: list[bool], machine: Machine,
        monkeypatch: pytest.MonkeyPatch) -> None:
    machine.fails["GetHandleByIndex", machine.cards[0]["uuid"]] = LOST
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    lost, *others = cards()
    assert "GPU is lost" in lost.unusable
    assert ["hides it" in card.unusable for card in others] == hidden


def test_instances_of_a_lost_mig_card_are_reported_lost(machine: Machine) -> None:
    machine.mig = True
    before = cards()
    assert len(before) == 9
    machine.fails["GetHandleByIndex", machine.cards[1]["uuid"]] = LOST
    after = cards()
    assert [card for card in after if card.index != 1] == [
        card for card in before if card.index != 1]
    assert [card.id for card in after if card.index == 1] == ["cuda:1"]
    with pytest.raises(DeviceFault, match=r"cuda:1:0 .*cuda:1 \(NVML: GPU is lost\)"):
        inventory.find("cuda:1:0")


@pytest.mark.parametrize(("call", "code", "left"), [
    ("GetMigDeviceHandleByIndex", LOST, "GPU is lost"), ("GetName", LOST, "GPU is lost"),
    ("GetMigDeviceHandleByIndex", pynvml.NVML_ERROR_NOT_FOUND, None)])
def test_failed_mig_instance_leaves_its_card_and_sibling_usable(
        call: str, code: int, left: str | None, machine: Machine) -> None:
    machine.mig = True
    before = cards()
    machine.fails[call, before[1].uuid] = code
    after = {card.id: card for card in cards()}
    assert left is None or left in after["cuda:0:0"].unusable
    assert {card for card in before if card.id != "cuda:0:0"} == {
        card for card in after.values() if card.id != "cuda:0:0"}
    assert ("cuda:0:0" in after) == (left is not None)


def test_missing_card_error_includes_the_driver_problem(
        machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = device.Listing(problem="NVML: Driver Not Loaded")
    monkeypatch.setitem(inventory._LISTERS, "nvidia", lambda: listing)
    with pytest.raises(DeviceFault, match=r"cuda:0 does not exist .*NVML: Driver Not Loaded"):
        inventory.find("cuda:0")


def test_card_that_hangs_while_listed_is_unusable_and_read_once(machine: Machine) -> None:
    before = cards()
    machine.hangs.add(("GetMemoryInfo", before[0].uuid))
    for _ in range(4):
        start = time.monotonic()
        hung, *others = cards()
        assert time.monotonic() - start < 10
        assert hung.id == "cuda:0" and "no answer since" in hung.unusable
        assert others == before[1:]
    assert machine.hung == [before[0].uuid] and len(driver_threads()) == 1
    assert inventory.find("cuda:1") == before[1]
    with pytest.raises(DeviceFault, match="cuda:0 cannot be used: no answer since"):
        inventory.find("cuda:0")
    machine.hangs.clear()
    machine.free.set()
    assert until(lambda: cards() == before, 60)


@pytest.mark.parametrize("stuck", [{0}, {1}, {0, 2}, {0, 1, 2}])
def test_hanging_card_does_not_block_the_others(
        stuck: set[int], machine: Machine) -> None:
    devices = cards()
    machine.hangs |= {("GetUtilizationRates", devices[index].uuid) for index in stuck}
    start = time.monotonic()
    for _ in range(4):
        now = inventory.states(devices)
        assert ["no answer since" in card.problem for card in now] == [
            card.index in stuck for card in devices]
    assert time.monotonic() - start < 2 * HUNG_S + 1, "hanging cards are awaited together, and once"
    for card in devices:
        assert bool(gate.look(card, pause=lambda _: None)) == (card.index in stuck)
    assert sorted(machine.hung) == sorted(devices[index].uuid for index in stuck)
    assert len(driver_threads()) == len(stuck), "each hanging card holds one thread"
    machine.hangs.clear()
    machine.free.set()
    assert until(lambda: not any(card.problem for card in inventory.states(devices)), 20)


def test_mig_instances_of_one_card_are_read_in_one_call(machine: Machine) -> None:
    machine.mig = True
    devices = cards()
    machine.hangs |= {("GetUtilizationRates", card.uuid) for card in devices[:3]}
    for _ in range(2):
        problems = [bool(state.problem) for state in inventory.states(devices)]
        assert problems == [True] * 3 + [False] * 6
        assert [bool(inventory.state(card).problem) for card in devices[:3]] == [True] * 3
    assert len(machine.hung) == len(driver_threads()) == 1


def test_many_readers_of_a_hanging_card_hold_one_thread(
        machine: Machine) -> None:
    stuck, *others = cards()
    machine.hangs.add(("GetUtilizationRates", stuck.uuid))
    problems: list[str] = []

    def ask(card: Device) -> Callable[[], None]:
        return lambda: problems.append(inventory.state(card).problem)

    threads = [threading.Thread(target=ask(card)) for card in [stuck] * 8 + others * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(problems) == 16 and sum(map(bool, problems)) == 8
    assert len(machine.hung) == 1 and len(driver_threads()) == 1


def test_concurrent_caller_gets_a_result_made_after_its_request() -> None:
    caller: BoundedCaller[int] = BoundedCaller()
    free = threading.Event()
    early = caller.start(lambda: (free.wait(60) and 1) or 1, 20)
    late = [caller.start(lambda number=number: number, 20)  # type: ignore[misc]
            for number in (2, 3)]
    free.set()
    assert [late[1](), late[0](), early()] == [3, 2, 1]


def test_caller_after_a_timeout_does_not_wait_for_its_own_limit() -> None:
    caller: BoundedCaller[bool] = BoundedCaller()
    free = threading.Event()
    first = caller.start(lambda: free.wait(60), 0.4)
    with pytest.raises(CallTimeout) as silence:
        first()
    start = time.monotonic()
    for _ in range(3):
        with pytest.raises(CallTimeout) as again:
            caller.start(lambda: True, 5.0)()
        assert again.value.since == silence.value.since
    assert time.monotonic() - start < 5.0, "later callers wait as well"
    free.set()
    assert until(lambda: not driver_threads())
    assert caller.start(lambda: True, 5)()
