"""An oracle that waits on a card does not make the card busy for kopt's own work."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from engine.verify import fleet as fleet_module
from engine.verify import gate
from engine.verify.fleet import Fleet
from engine.verify.fleet_device import FleetDevice, NoDeviceAvailable
from harness.devices import inventory
from harness.devices.device import Device, DeviceProcess, DeviceState
from harness.devices.monitoring import tenants
from harness.isolation import process_tree
from harness.isolation.zygote_client import WarmStart
from tests.support.judging.kept_oracles import started
from tests.support.programs.processes import until

CARD = Device(id="cuda:0", kind="nvidia", name="NVIDIA H200", uuid="GPU-kept", arch="sm_90")


@pytest.fixture
def load() -> list[float]:
    """A list whose last value is the utilization of a card in percent."""
    return [0.0]


@pytest.fixture
def on_card(load: list[float], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pids of the processes on a card, as its driver lists them."""
    pids: list[int] = []
    monkeypatch.setitem(inventory._READERS, "nvidia", lambda cards: [
        DeviceState(device=card.id, at=0.0, utilization_pct=load[-1], memory_used=0,
                    memory_total=1 << 37,
                    processes=tuple(DeviceProcess(pid=pid) for pid in pids
                                    if Path(f"/proc/{pid}").exists())) for card in cards])
    return pids


@pytest.fixture
def fleet() -> Fleet:
    return Fleet([(CARD, WarmStart(None))], retry_s=0.1, limit_s=0.5, tick_s=0.01,
                 look=partial(gate.look, pause=lambda _: None))


@pytest.fixture
def verdict(tmp_path: Path, on_card: list[int]) -> Callable[[FleetDevice], int]:
    def verdict(card: FleetDevice) -> int:
        with started(tmp_path, card.shelf) as oracle:
            supervisor = oracle._peer._guarded.pid
        on_card[:] = process_tree.descendants(supervisor)
        return supervisor

    return verdict


def test_waiting_oracle_is_no_stranger_and_ends_when_its_card_is_taken(
        fleet: Fleet, on_card: list[int], verdict: Callable[[FleetDevice], int]) -> None:
    supervisor = fleet.run("verdict", verdict)
    assert on_card and tenants.is_in_use(CARD.lock_name)
    assert fleet.run("verdict", verdict) == supervisor
    orphan = int(subprocess.check_output(["sh", "-c", "sleep 600 >/dev/null & echo $!"]))
    try:
        on_card.append(orphan)
        with pytest.raises(NoDeviceAvailable, match="in use by process"):
            fleet.run("verdict", verdict)
    finally:
        os.kill(orphan, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{supervisor}").exists())


def test_card_on_which_an_oracle_waits_must_be_idle_as_any_other(
        fleet: Fleet, load: list[float], verdict: Callable[[FleetDevice], int],
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Its load may be that of a process that the driver does not list."""
    fleet.run("verdict", verdict)
    monkeypatch.setattr(fleet_module, "JUST_LEFT_S", -1.0)  # then utilization counts again
    fleet.run("verdict", verdict)
    load.append(97.0)
    with pytest.raises(NoDeviceAvailable, match="97 % in use"):
        fleet.run("verdict", verdict)


def test_device_stays_registered_while_a_verdict_enters_and_a_loop_leaves(
        fleet: Fleet, on_card: list[int]) -> None:
    assert not on_card
    [card], allocator = fleet.cards, fleet.allocator
    with ExitStack() as loop, allocator.place_in_queue("verdict") as place:
        loop.enter_context(fleet.occupy("loop"))
        entered = allocator.enter("verdict", place)
        assert entered is not None
        card.register()
        loop.close()
    assert allocator.admit(*entered) is not None and tenants.is_in_use(CARD.lock_name)
    allocator.leave(card, "verdict")
    assert not tenants.is_in_use(CARD.lock_name)


def test_card_is_free_after_its_campaign_ends(fleet: Fleet,
                                              verdict: Callable[[FleetDevice], int]) -> None:
    supervisor = fleet.run("verdict", verdict)
    fleet.close()
    assert not tenants.is_in_use(CARD.lock_name)
    until(lambda: not Path(f"/proc/{supervisor}").exists())
