"""Without nvidia-ml-py, the driver's library gives the harness the same answers."""

from __future__ import annotations

import builtins
import ctypes
import re
import subprocess
import sys

import pytest

from harness.devices import inventory, nvidia, nvml
from harness.devices.nvidia import NvmlReader
from tests.support.paths import ROOT

LIBRARY = r"""
#include <stdint.h>
#include <string.h>
typedef void *handle;
static int card;
unsigned cards = 1, lost = 9;
const char *nvmlErrorString(int code) { return code == 3 ? "Not Supported" : "Some Error"; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = cards; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, handle *h) {
    *h = &card;
    return i == lost ? 15 : i < cards ? 0 : 2;
}
int nvmlDeviceGetHandleByUUID(const char *u, handle *h) {
    *h = &card;
    return strcmp(u, "GPU-1") ? 6 : 0;
}
static int is(handle h) { return h == &card ? 0 : 2; }
int nvmlDeviceGetName(handle h, char *s, unsigned n) { strncpy(s, "Some Card", n); return is(h); }
int nvmlDeviceGetUUID(handle h, char *s, unsigned n) { strncpy(s, "GPU-1", n); return is(h); }
int nvmlDeviceGetCudaComputeCapability(handle h, int *a, int *b) { *a = 9; *b = 0; return is(h); }
int nvmlDeviceGetComputeMode(handle h, unsigned *m) { *m = 3; return is(h); }
int nvmlDeviceGetMigMode(handle h, unsigned *a, unsigned *b) { return h && a && b ? 3 : 2; }
struct memory2 { unsigned version; uint64_t total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(handle h, struct memory2 *m) {
    if (m->version != (sizeof *m | 2u << 24)) return 2;
    m->total = 80ull << 30; m->used = 3ull << 30;
    return is(h);
}
int nvmlDeviceGetPowerUsage(handle h, unsigned *v) { *v = 123456; return is(h); }
int nvmlDeviceGetEnforcedPowerLimit(handle h, unsigned *v) { *v = 700000; return is(h); }
int nvmlDeviceGetUtilizationRates(handle h, unsigned *v) { v[0] = 41; v[1] = 7; return is(h); }
int nvmlDeviceGetTemperature(handle h, int sensor, unsigned *v) { *v = 30 + sensor; return is(h); }
int nvmlDeviceGetClockInfo(handle h, int clock, unsigned *v) { *v = 1000 * clock; return is(h); }
int nvmlDeviceGetCurrentClocksThrottleReasons(handle h, unsigned long long *v) {
    *v = 0x4;
    return is(h);
}
struct running { unsigned pid; unsigned long long used; unsigned gi, ci; };
int nvmlDeviceGetComputeRunningProcesses_v3(handle h, unsigned *n, struct running *r) {
    unsigned room = *n;
    *n = 100;
    if (room < 100) return 7;
    for (unsigned i = 0; i < 100; i++) r[i] = (struct running){i + 1, i ? i : ~0ull, 0, 0};
    return is(h);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "nvml.so", folder / "nvml.c"],
                   check=True)
    return str(folder / "nvml.so")


def test_card_is_read_through_the_driver_library(
        library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", library)
    driver = nvml.Driver()
    driver.nvmlInit()
    card, = NvmlReader(driver).devices()
    assert (card.name, card.uuid, card.arch, card.memory_bytes, card.note) == (
        "Some Card", "GPU-1", "sm_90", 80 << 30, "EXCLUSIVE_PROCESS: one process at a time")
    state = NvmlReader(driver).state(card)
    assert (state.memory_used, state.utilization_pct, state.temperature_c) == (3 << 30, 41.0, 30)
    assert (state.power_w, state.power_limit_w) == (123.456, 700.0)
    assert state.clock_mhz == 1000
    assert (state.throttle, state.compute_mode) == (("sw-power-cap",), "exclusive-process")
    assert state.processes is not None and len(state.processes) == 100
    assert [process.memory_bytes for process in state.processes[:2]] == [None, 1]
    driver.nvmlShutdown()
    with pytest.raises(nvml.NVMLError, match="Some Error") as error:
        driver.nvmlDeviceGetHandleByUUID("GPU-2")
    assert error.value.value == 6
    assert driver.nvmlDeviceGetClockInfo(driver.nvmlDeviceGetHandleByIndex(0), 2) == 2000


@pytest.mark.parametrize("lost", [0, 1])
def test_lost_card_is_marked_through_the_driver_library(
        lost: int, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", library)
    driver, loaded = nvml.Driver(), ctypes.CDLL(library)
    for name, value in (("cards", 2), ("lost", lost)):
        monkeypatch.setattr(ctypes.c_uint.in_dll(loaded, name), "value", value)
    driver.nvmlInit()
    cards = NvmlReader(driver).devices()
    assert [card.id for card in cards] == ["cuda:0", "cuda:1"]
    assert [card.unusable for card in cards] == [
        "NVML: Some Error" if index == lost else "" for index in range(2)]
    assert cards[1 - lost].uuid == "GPU-1" and not cards[lost].uuid


def test_machine_without_package_and_driver_has_no_card(
        monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__
    monkeypatch.setattr(nvml.importlib, "import_module", lambda name: real("no_such_" + name))
    monkeypatch.setattr(nvml, "LIBRARY", "libkopt-no-such.so.1")
    assert nvml.load() is nvml._driver
    monkeypatch.setattr(nvml, "_driver", nvml.Driver())
    assert nvidia.listing().devices == ()


def test_driver_has_every_name_that_the_harness_uses() -> None:
    used = {name for path in (ROOT / "harness").rglob("*.py") if path.name != "nvml.py"
            for name in re.findall(r"(?:nvml|library)\.((?:nvml|NVML)\w+)", path.read_text())}
    assert len(used) > 20
    driver = nvml.Driver()
    assert {name for name in used if not hasattr(driver, name)} == set()


@pytest.mark.gpu
def test_package_and_driver_library_list_the_same_cards() -> None:
    code = "import sys; from harness.devices import nvidia as d; print(d.listing().devices)"
    hidden = f"import sys; sys.modules['pynvml'] = None; {code}"
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
