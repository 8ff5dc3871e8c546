"""Samples and sharing modes of NVIDIA cards, from recorded NVML values and a real card."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest

from harness.devices import inventory
from harness.devices.device import Device, DeviceState
from harness.devices.monitoring import telemetry
from harness.devices.monitoring.telemetry_sources import ONE_PROCESS, NvmlSource, sharing_mode
from harness.devices.nvidia import NvmlReader
from tests.support.devices.telemetry_case import block, readings, watch
from tests.support.paths import ROOT


def recorded_nvml(**changes: Any) -> Any:
    pytest.importorskip("pynvml", reason="NVML's Python binding is not installed")
    from tests.support.devices.nvml_case import RecordedNvml, recorded

    nvml = RecordedNvml([{**recorded()[1], **changes.pop("card", {})}], **changes)

    def clock(card: dict[str, Any], kind: int) -> int:
        if kind != nvml.NVML_CLOCK_SM:  # no other clock was recorded
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        return int(card["sm_mhz"])

    nvml.nvmlInit = lambda: None  # type: ignore[attr-defined]
    nvml.nvmlDeviceGetClockInfo = clock  # type: ignore[attr-defined]
    return nvml


def test_source_samples_a_recorded_h200() -> None:
    nvml = recorded_nvml()
    source = NvmlSource(nvml.cards[0]["uuid"], nvml)
    before = time.perf_counter_ns()
    sample = source.sample()
    assert before <= sample.at_ns <= time.perf_counter_ns()
    assert replace(sample, at_ns=0) == readings(1)[0]


def test_lost_card_is_reported_and_sampled_again_when_it_is_back(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "PATIENCE_S", 20.0)
    nvml = recorded_nvml()
    source = NvmlSource(nvml.cards[0]["uuid"], nvml)
    cards, nvml.cards = nvml.cards, []
    with watch(source) as watching:
        assert "samples failed: GPU is lost" in watching.between(*block()).unavailable
        nvml.cards = cards
        assert watching.between(*block()).samples == 1


def test_sample_fails_only_if_every_call_fails() -> None:
    nvml = recorded_nvml()

    def broken(*_: object) -> None:
        raise nvml.NVMLError(nvml.NVML_ERROR_UNKNOWN)

    nvml.nvmlDeviceGetTemperature = broken
    source = NvmlSource(nvml.cards[0]["uuid"], nvml)
    assert (source.sample().temperature_c, source.sample().reasons) == (None, 4)
    for call in ("ClockInfo", "PowerUsage", "CurrentClocksEventReasons",
                 "CurrentClocksThrottleReasons", "ComputeRunningProcesses"):
        setattr(nvml, f"nvmlDeviceGet{call}", broken)
    with pytest.raises(nvml.NVMLError):
        source.sample()
    back = recorded_nvml(card={"sm_mhz": 345})
    nvml.cards, nvml.nvmlDeviceGetClockInfo = back.cards, back.nvmlDeviceGetClockInfo
    assert source.sample().sm_mhz == 345  # through a new handle


@pytest.mark.parametrize(("compute_mode", "mig", "one_process", "note"), [
    (0, False, False, ""), (3, False, True, f"EXCLUSIVE_PROCESS: {ONE_PROCESS}"),
    (1, False, True, f"EXCLUSIVE_THREAD: {ONE_PROCESS}"),
    (2, False, False, "PROHIBITED: no process may use the card"),
    (0, True, True, f"a MIG instance: {ONE_PROCESS}")])
def test_compute_mode_decides_whether_processes_share_a_card(
        compute_mode: int, mig: bool, one_process: bool, note: str,
        monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = recorded_nvml(card={"compute_mode": compute_mode}, mig=mig)

    def read(devices: list[Device]) -> list[DeviceState]:
        return [NvmlReader(nvml).state(replace(device, uuid=nvml.cards[0]["uuid"]))
                for device in devices]

    monkeypatch.setattr(inventory, "_known", {})
    monkeypatch.setitem(inventory._READERS, "nvidia", read)
    mode = sharing_mode(NvmlReader(nvml).devices()[-1])
    assert (mode.one_process, mode.note) == (one_process, note)


def test_mode_of_a_silent_card_is_the_listed_one(
        monkeypatch: pytest.MonkeyPatch) -> None:
    card = NvmlReader(recorded_nvml(card={"compute_mode": 3})).devices()[0]
    monkeypatch.setattr(inventory, "_known", {})
    monkeypatch.setitem(inventory._READERS, "nvidia", lambda devices: [
        DeviceState(device=device.id, at=0.0, problem="lost") for device in devices])
    assert sharing_mode(card).one_process and not sharing_mode(inventory.find("cpu")).note


def test_nvml_is_loaded_with_the_first_sample() -> None:
    code = ("import sys, harness.devices.monitoring.telemetry_sources as n; n.NvmlSource('GPU-0'); "
            "print([name for name in sys.modules if 'pynvml' in name])")
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT,
                             capture_output=True, text=True, check=True, timeout=60)
    assert process.stdout.strip() == "[]"


@pytest.mark.gpu
def test_idle_real_card_voids_no_block() -> None:
    card = next(device for device in inventory.inventory()
                if device.kind == "nvidia" and not device.unusable)
    with watch(NvmlSource(card.uuid), interval_s=telemetry.INTERVAL_S) as watching:
        watching.between(*block())  # the first sample loads NVML
        start = time.perf_counter()
        healths = [watching.between(*block()) for _ in range(100)]
        cost_ms = 10 * (time.perf_counter() - start)
    print(f"{cost_ms:.2f} ms a sample; {healths[-1]}; {sharing_mode(card)}")
    assert not healths[-1].unavailable and healths[-1].sm_mhz and healths[-1].temperature_c
    assert not any(health.slowdown for health in healths)
    assert cost_ms < 20
