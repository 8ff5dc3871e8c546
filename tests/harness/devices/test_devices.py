"""Devices are listed and read: the real CPU, recorded NVML values, recorded outputs of tools."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.verify import gate
from harness.devices import amd, device, inventory
from harness.devices.call_timeout import BoundedCaller, CallTimeout
from harness.devices.nvidia import NvmlReader
from harness.errors import EnvironmentFault, InputError
from tests.support.devices.nvml_case import DEVICE_DATA, RecordedNvml, recorded
from tests.support.programs.processes import until


def test_cpu_reports_load_and_memory() -> None:
    cpu = inventory.find("cpu")
    assert (cpu.kind, cpu.lock_name) == ("cpu", "cpu")
    assert cpu.cores == len(os.sched_getaffinity(0))
    now = inventory.state(cpu)
    assert now.utilization_pct is not None and 0 <= now.utilization_pct <= 100
    assert now.memory_used and now.memory_total and now.memory_used < now.memory_total
    assert cpu.visible_env["CUDA_VISIBLE_DEVICES"] == ""


def test_busy_core_raises_the_load() -> None:
    cpu = inventory.find("cpu")
    inventory.state(cpu)
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    busy = inventory.state(cpu).utilization_pct
    assert busy is not None and busy >= 50 / (cpu.cores or 1)


def test_recorded_h200_states_are_decoded() -> None:
    nvml = NvmlReader(RecordedNvml(recorded()))
    idle, busy = nvml.devices()
    assert (busy.id, busy.name, busy.index) == ("cuda:1", "NVIDIA H200", 1)
    assert busy.visible_env == {"CUDA_VISIBLE_DEVICES": "GPU-a7b23e03-c18d-dda4-83aa-e6c18d15963f"}
    now = nvml.state(busy)
    assert now.utilization_pct == 100
    assert now.power_w == pytest.approx(690.864)
    assert now.throttle == ("sw-power-cap",) and now.slowed == ()
    assert now.processes is not None and [process.pid for process in now.processes] == [542]
    assert now.clock_mhz is None
    assert nvml.state(idle).throttle == ("idle",)
    assert nvml.state(idle).processes == ()


def test_card_has_its_device_file_and_a_mig_instance_has_none() -> None:
    class Numbered(RecordedNvml):
        def nvmlDeviceGetMinorNumber(self, card: dict[str, Any]) -> int:
            return 5 - int(card["index"])

    first, second = NvmlReader(Numbered(recorded())).devices()
    assert (first.nodes, second.nodes) == (("nvidia5",), ("nvidia4",))
    both = device.join_cards([first, second])
    assert both.all_nodes == ("nvidia5", "nvidia4") and both.nodes == first.nodes
    assert device.join_cards([first, replace(second, nodes=())]).all_nodes == ()
    reader = NvmlReader(Numbered(recorded()[:1], mig=True))
    assert [device.nodes for device in reader.devices()] == [(), ()]


def test_thermal_slowdown_counts_and_a_power_cap_does_not() -> None:
    hot = {**recorded()[0], "reasons": 0x4 | 0x40}
    nvml = NvmlReader(RecordedNvml([hot]))
    assert nvml.state(nvml.devices()[0]).slowed == ("hw-thermal",)


def test_card_with_mig_is_unusable_and_its_instances_are_listed() -> None:
    card, instance = NvmlReader(RecordedNvml(recorded()[:1], mig=True)).devices()
    assert "MIG is on" in card.unusable
    assert (instance.id, instance.unusable) == ("cuda:0:0", "")
    assert instance.uuid.startswith("MIG-")


def test_compute_modes_that_limit_a_card_are_listed() -> None:
    exclusive, prohibited = recorded()
    cards = NvmlReader(RecordedNvml([{**exclusive, "compute_mode": 3},
                                     {**prohibited, "compute_mode": 2}])).devices()
    assert "EXCLUSIVE_PROCESS" in cards[0].note
    assert "PROHIBITED" in cards[1].unusable


@pytest.mark.parametrize(
    ("value", "hidden"),
    [("", [True, True]), ("0", [False, True]), ("1,0", [False, False]), ("-1,0", [True, True]),
     ("1,x,0", [True, False]), ("GPU-a7b23e03", [True, False])],
)
def test_inherited_visible_devices_hide_other_cards(
        value: str, hidden: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    listing = device.Listing(tuple(NvmlReader(RecordedNvml(recorded())).devices()))
    monkeypatch.setitem(inventory._LISTERS, "nvidia", lambda: listing)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    cards = [device for device in inventory.inventory() if device.kind == "nvidia"]
    assert [bool(card.unusable) for card in cards] == hidden
    for card in cards:
        if card.unusable:
            with pytest.raises(EnvironmentFault, match=r"CUDA_VISIBLE_DEVICES=.* hides it"):
                inventory.find(card.id)


def test_auto_selects_the_most_idle_card(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = NvmlReader(RecordedNvml(list(reversed(recorded()))))
    listing = device.Listing(tuple(nvml.devices()))
    monkeypatch.setitem(inventory._LISTERS, "nvidia", lambda: listing)
    monkeypatch.setitem(inventory._READERS, "nvidia",
                        lambda cards: [nvml.state(card) for card in cards])
    assert inventory.find("auto").uuid == "GPU-3c8771b7-ed27-4aa0-fa3f-6d2ddf098e41"
    assert inventory.find("gpu-a7b2").id == "cuda:0"


def test_invalid_or_absent_device_names_are_errors() -> None:
    with pytest.raises(InputError, match="'gpu zero' is not a device name"):
        inventory.find("gpu zero")
    with pytest.raises(EnvironmentFault, match="cuda:77 does not exist"):
        inventory.find("cuda:77")


def test_card_without_readings_is_not_idle() -> None:
    output = json.loads((DEVICE_DATA / "xrocmtop_strix_halo.json").read_text())
    output["system"] = {"PID41": "python3, 1, 512, 0, 0"}
    cards = list(amd.devices(amd.rocm_cards(output), amd.ROCM_SMI))
    silent = [state for state in amd.rocm_states(cards, output) if state.utilization_pct is None]
    assert silent and all("cannot tell" in gate.why_busy(state) for state in silent)


def test_failing_or_hanging_tool_keeps_the_last_good_values(
        tools: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    tools("rocm-smi", f"cat {DEVICE_DATA / 'telegraf_rx6700xt_rocm612.json'}")
    card = next(device for device in inventory.inventory() if device.kind == "amd")
    good = inventory.state(card)
    assert not good.problem
    tools("rocm-smi", "echo 'no driver \033[31mhere' >&2; exit 2")
    failed = inventory.state(card)
    assert failed.problem == "rocm-smi printed no JSON: no driver here"
    assert (failed.power_w, failed.at) == (good.power_w, good.at)
    monkeypatch.setattr(amd, "TOOL_S", 0.2)
    tools("rocm-smi", "exec sleep 60")
    start = time.monotonic()
    hung = inventory.state(card)
    assert time.monotonic() - start < 30
    assert hung.problem == "rocm-smi did not answer within 0.2 s"
    assert hung.silent_since == failed.silent_since
    tools("rocm-smi", "echo '{\"card7\": {}}'")
    assert inventory.state(card).problem == "the card is no longer listed"
    tools("rocm-smi", f"cat {DEVICE_DATA / 'telegraf_rx6700xt_rocm612.json'}")
    back = inventory.state(card)
    assert (back.problem, back.silent_since) == ("", None)


def test_hanging_call_is_abandoned_and_not_repeated() -> None:
    caller: BoundedCaller[int] = BoundedCaller()
    gate, calls = threading.Event(), []

    def hang() -> int:
        calls.append(1)
        gate.wait(60)
        return 1

    for _ in range(3):
        with pytest.raises(CallTimeout):
            caller.start(hang, 0.05)()
    assert len(calls) == 1
    gate.set()
    assert until(lambda: "kopt-bounded-call" not in {
        thread.name for thread in threading.enumerate()})
    assert caller.start(lambda: 2, 5)() == 2
    with pytest.raises(ZeroDivisionError):
        caller.start(lambda: 1 // 0, 5)()
