"""Samples and modes of NVIDIA cards: recorded NVML values, and a real card where there is one."""

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
from harness.devices.monitoring.telemetry_nvidia import ONE_PROCESS, NvmlSource, sharing_mode
from harness.devices.nvidia import NvmlReader
from tests.harness.devices.test_telemetry import block, readings, watch
from tests.support.paths import ROOT


def recorded_nvml(**changes: Any) -> Any:
    pytest.importorskip("pynvml", reason="NVML's Python binding is not installed")
    from tests.harness.devices.test_devices import RecordedNvml, recorded

    nvml = RecordedNvml([{**recorded()[1], **changes.pop("card", {})}], **changes)

    def clock(card: dict[str, Any], kind: int) -> int:
        if kind != nvml.NVML_CLOCK_SM:  # the only one that was recorded
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        return int(card["sm_mhz"])

    nvml.nvmlInit = lambda: None  # type: ignore[attr-defined]
    nvml.nvmlDeviceGetClockInfo = clock  # type: ignore[attr-defined]
    return nvml


def test_a_recorded_h200_is_sampled() -> None:
    nvml = recorded_nvml()
    source = NvmlSource(nvml.cards[0]["uuid"], nvml)
    before = time.perf_counter_ns()
    sample = source.sample()
    assert before <= sample.at_ns <= time.perf_counter_ns()
    assert replace(sample, at_ns=0) == readings(1)[0]


def test_a_lost_card_is_told_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "PATIENCE_S", 20.0)
    nvml = recorded_nvml()
    source = NvmlSource(nvml.cards[0]["uuid"], nvml)
    cards, nvml.cards = nvml.cards, []
    with watch(source) as watching:
        assert "samples failed: GPU is lost" in watching.between(*block()).unavailable
        nvml.cards = cards
        assert watching.between(*block()).samples == 1


def test_a_card_that_answers_nothing_is_a_failure_and_one_missing_call_is_not() -> None:
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


@pytest.mark.parametrize(("compute_mode", "mig", "one_process", "words"), [
    (0, False, False, ""), (3, False, True, f"EXCLUSIVE_PROCESS: {ONE_PROCESS}"),
    (1, False, True, f"EXCLUSIVE_THREAD: {ONE_PROCESS}"),
    (2, False, False, "PROHIBITED: no process may use the card"),
    (0, True, True, f"a MIG instance: {ONE_PROCESS}")])
def test_a_card_that_two_processes_cannot_share_is_recognised(
        compute_mode: int, mig: bool, one_process: bool, words: str,
        monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = recorded_nvml(card={"compute_mode": compute_mode}, mig=mig)

    def read(asked: list[Device]) -> list[DeviceState]:
        return [NvmlReader(nvml).state(replace(one, uuid=nvml.cards[0]["uuid"])) for one in asked]

    monkeypatch.setitem(inventory._READERS, "nvidia", read)
    found = sharing_mode(NvmlReader(nvml).devices()[-1])
    assert (found.one_process, found.words, found.mig) == (one_process, words, mig)


def test_the_mode_of_a_card_that_does_not_answer_is_the_listed_one(
        monkeypatch: pytest.MonkeyPatch) -> None:
    card = NvmlReader(recorded_nvml(card={"compute_mode": 3})).devices()[0]
    monkeypatch.setattr(inventory, "_known", {})
    monkeypatch.setitem(inventory._READERS, "nvidia", lambda asked: [
        DeviceState(device=one.id, at=0.0, problem="lost") for one in asked])
    assert sharing_mode(card).one_process and not sharing_mode(inventory.find("cpu")).words


def test_nothing_of_nvml_is_loaded_before_the_first_sample() -> None:
    code = ("import sys, harness.devices.monitoring.telemetry_nvidia as n; n.NvmlSource('GPU-0'); "
            "print([name for name in sys.modules if 'pynvml' in name])")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT,
                          capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.gpu
def test_a_real_card_is_watched_and_an_idle_one_voids_nothing() -> None:
    card = next(one for one in inventory.inventory() if one.kind == "nvidia" and not one.unusable)
    with watch(NvmlSource(card.uuid), interval_s=telemetry.INTERVAL_S) as watching:
        watching.between(*block())  # the first sample loads NVML
        began = time.perf_counter()
        found = [watching.between(*block()) for _ in range(100)]
        cost_ms = 10 * (time.perf_counter() - began)
    print(f"{cost_ms:.2f} ms a sample; {found[-1]}; {sharing_mode(card)}")
    assert not found[-1].unavailable and found[-1].sm_mhz and found[-1].temperature_c
    assert not any(one.slowdown for one in found)
    assert cost_ms < 20
