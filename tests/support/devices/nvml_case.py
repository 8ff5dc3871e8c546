"""A stand-in for NVML that returns recorded values of two H200 cards."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from harness.devices import inventory
from tests.support.paths import DATA

DEVICE_DATA = DATA / "devices"


class RecordedNvml:
    """Returns recorded NVML values; calls that were not recorded are unsupported."""

    def __init__(self, cards: list[dict[str, Any]], mig: bool = False) -> None:
        self.cards, self.mig = cards, mig

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvmlDevice"):
            def unsupported(*_: object) -> None:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return unsupported
        return getattr(pynvml, name)

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        return self.cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> dict[str, Any]:
        for card in self.cards:
            if card["uuid"] == uuid:
                return card
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    def nvmlDeviceGetName(self, card: dict[str, Any]) -> str:
        return str(card["name"])

    def nvmlDeviceGetUUID(self, card: dict[str, Any]) -> str:
        return str(card["uuid"])

    def nvmlDeviceGetMemoryInfo(self, card: dict[str, Any], version: int = 0) -> Any:
        if version:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return SimpleNamespace(used=card["used"], total=card["total"])

    def nvmlDeviceGetUtilizationRates(self, card: dict[str, Any]) -> Any:
        return SimpleNamespace(gpu=card["gpu"], memory=card["memory"])

    def nvmlDeviceGetTemperature(self, card: dict[str, Any], _: int) -> int:
        return int(card["temp"])

    def nvmlDeviceGetPowerUsage(self, card: dict[str, Any]) -> int:
        return int(card["power_mw"])

    def nvmlDeviceGetCurrentClocksEventReasons(self, card: dict[str, Any]) -> int:
        return int(card["reasons"])

    def nvmlDeviceGetComputeMode(self, card: dict[str, Any]) -> int:
        return int(card["compute_mode"])

    def nvmlDeviceGetComputeRunningProcesses(self, card: dict[str, Any]) -> list[Any]:
        return [SimpleNamespace(pid=process["pid"], usedGpuMemory=process["used"])
                for process in card["procs"]]

    def nvmlDeviceGetMigMode(self, _: dict[str, Any]) -> list[int]:
        return [int(self.mig), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, _: dict[str, Any]) -> int:
        return 2

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: dict[str, Any], place: int) -> Any:
        if place or not self.mig:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return {**card, "uuid": "MIG-" + card["uuid"], "name": card["name"] + " MIG 1g.18gb"}


def recorded() -> list[dict[str, Any]]:
    return list(json.loads((DEVICE_DATA / "nvml_two_h200.json").read_text()))


@pytest.fixture(autouse=True)
def no_known_states(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(inventory, "_known", {})
