"""Real cards through NVML, and what stands in for nvidia-ml-py on GPU machines without it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from harness.devices import inventory, nvidia
from tests.support.devices.stand_ins import pynvml as stand_in
from tests.support.paths import ROOT


def test_machine_without_a_driver_has_no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_in, "LIBRARY", "libkopt-no-such.so.1")
    monkeypatch.setattr(stand_in, "_driver", stand_in.Driver())
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    assert nvidia.listing().devices == ()


def test_stand_in_has_every_name_that_the_harness_uses() -> None:
    used = {name for path in (ROOT / "harness").rglob("*.py")
            for name in re.findall(r"(?:nvml|library)\.((?:nvml|NVML)\w+)", path.read_text())}
    assert len(used) > 20
    assert {name for name in used if not hasattr(stand_in, name)} == set()


@pytest.mark.gpu
def test_package_and_driver_library_list_the_same_cards() -> None:
    code = "from harness.devices import nvidia as d; print(d.listing().devices)"
    hidden = f"import sys; sys.path.insert(0, 'tests/support/devices/stand_ins'); {code}"
    first, second = (subprocess.run([sys.executable, "-c", program], cwd=ROOT,
                                    capture_output=True, text=True, check=True).stdout
                     for program in (code, hidden))
    assert first == second and "GPU-" in second


@pytest.mark.gpu
def test_real_card_reports_its_state() -> None:
    cards = [device for device in inventory.inventory() if device.kind != "cpu"]
    assert cards and all(card.arch and card.memory_bytes for card in cards)
    now = inventory.state(cards[0])
    assert not now.problem
    assert now.memory_total == cards[0].memory_bytes
    assert now.power_w and now.temperature_c
