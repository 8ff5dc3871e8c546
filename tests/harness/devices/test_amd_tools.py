"""AMD cards are read by rocm-smi or amd-smi, whichever the machine has."""

from __future__ import annotations

import json
from collections.abc import Callable

from engine.verify import gate
from harness.devices import amd, device, inventory
from tests.support.devices.nvml_case import DEVICE_DATA


def test_rocm_smi_is_read(tools: Callable[[str, str], None]) -> None:
    tools("rocm-smi", f"echo 'WARNING: AMD GPU device(s) is/are in a low-power state.'; "
                      f"cat {DEVICE_DATA / 'telegraf_mi100_rocm571.json'}")
    cards = [device for device in inventory.inventory() if device.kind == "amd"]
    assert {card.name for card in cards} == {"Arcturus GL-XL [Instinct MI100]"}
    assert cards[0].memory_bytes == 34342961152
    assert (cards[0].uuid, cards[0].visible_env) == ("0000:1E:00.0", {
        "ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "0"})
    now = inventory.state(cards[0])
    assert (now.temperature_c, now.power_w, now.clock_mhz) == (34.0, 39.0, 300.0)
    assert now.processes == ()  # the listed process uses no card


def test_newer_keys_and_missing_values_of_rocm_smi_are_read() -> None:
    for name, arch in (("telegraf_rx6700xt_rocm612", "gfx1031"), ("xrocmtop_strix_halo",
                                                                  "gfx1151")):
        output = json.loads((DEVICE_DATA / f"{name}.json").read_text())
        cards = list(amd.devices(amd.rocm_cards(output), amd.ROCM_SMI))
        assert cards[0].arch == arch
        first, *others = amd.rocm_states(cards, output)
        assert first.utilization_pct == 0 and first.memory_total == cards[0].memory_bytes
        assert all(other.utilization_pct is None and other.power_w is None for other in others)


def test_amd_smi_is_read_where_it_is_the_only_tool(tools: Callable[[str, str], None]) -> None:
    metric = [
        {
            "gpu": 0,
            "usage": {"gfx_activity": {"value": 37, "unit": "%"}},
            "mem_usage": {
                "total_vram": {"value": 65520, "unit": "MB"},
                "used_vram": {"value": 10, "unit": "MB"},
            },
            "temperature": {"edge": "N/A", "hotspot": {"value": 36, "unit": "C"}},
            "clock": {"gfx_0": {"clk": {"value": 800, "unit": "MHz"}}},
            "power": json.loads((DEVICE_DATA / "metric_power_rocm6.0.json").read_text())[0][
                "power"
            ],
        }
    ]
    files = {"static": (DEVICE_DATA / "static_mi210_gpu_data.json").read_text(),
             "process": (DEVICE_DATA / "process_two_procs_rocm6.2.json").read_text(),
             "metric": json.dumps({"gpu_data": metric}), "list": "[]"}
    cases = "\n".join(f"{name}) cat <<'EOF'\n{text}\nEOF\n;;" for name, text in files.items())
    tools("amd-smi", f"case $1 in\n{cases}\nesac")
    card = next(device for device in inventory.inventory() if device.kind == "amd")
    assert (card.name, card.arch) == ("AMD Instinct MI210", "gfx90a")
    assert card.memory_bytes == 65520 * 1024 * 1024
    now = inventory.state(card)
    assert (now.utilization_pct, now.power_w, now.temperature_c) == (37.0, 10.0, 36.0)
    assert now.memory_used == 10 * 1024 * 1024 and now.clock_mhz == 800.0
    assert now.processes is not None
    assert [(process.pid, process.name) for process in now.processes] == [
        (420157, "TransferBench"), (420315, "rvs")]


ROCM_PIDS = {"PID104225": "mlir-cpu-runner, 0, 0, 0, 0", "PID41": "python3, 1, 512, 0, 0"}


def rocm(cards: int, system: dict[str, str]) -> str:
    """Return a script that prints rocm-smi's recorded cards (two at most) and these processes."""
    output = json.loads((DEVICE_DATA / "telegraf_mi100_rocm571.json").read_text())
    chosen = {f"card{index}": output[f"card{index}"] for index in range(cards)}
    return f"cat <<'EOF'\n{json.dumps({**chosen, 'system': system})}\nEOF"


def amd_smi(process: object, listed: object = ()) -> str:
    return f"""case $1 in
process) cat <<'EOF'\n{json.dumps(process)}\nEOF\n;;
list) cat <<'EOF'\n{json.dumps(listed)}\nEOF\n;;
*) exit 1;; esac"""


def amd_states() -> list[device.DeviceState]:
    return inventory.states([device for device in inventory.inventory() if device.kind == "amd"])


def pids(states: list[device.DeviceState]) -> list[list[int] | None]:
    return [None if state.processes is None else [process.pid for process in state.processes]
            for state in states]


def test_processes_on_some_cards_are_unknown_with_rocm_smi_alone(
        tools: Callable[[str, str], None]) -> None:
    tools("amd-smi", "exit 1")
    tools("rocm-smi", rocm(2, ROCM_PIDS))
    assert pids(amd_states()) == [None, None]
    assert [gate.why_busy(state) for state in amd_states()] == ["", ""], "both are idle by load"
    tools("rocm-smi", rocm(1, ROCM_PIDS))
    assert pids(amd_states()) == [[41]]
    tools("rocm-smi", rocm(2, {"PID41": "python3, 2, 512, 0, 0"}))
    assert pids(amd_states()) == [[41], [41]], "the process uses all cards"
    tools("rocm-smi", rocm(2, {"PID7": "python3, 0, 0, 0, 0"}))
    assert pids(amd_states()) == [[], []]


def test_processes_are_assigned_to_cards_by_amd_smis_pci_addresses(
        tools: Callable[[str, str], None]) -> None:
    process = json.loads((DEVICE_DATA / "process_two_procs_rocm6.2.json").read_text())
    running = {"PID420157": "TransferBench, 1, 512, 0, 0", "PID420315": "rvs, 1, 512, 0, 0"}
    tools("rocm-smi", rocm(2, running))
    buses = [json.loads((DEVICE_DATA / "telegraf_mi100_rocm571.json").read_text())[name]["PCI Bus"]
             for name in ("card0", "card1")]
    both = [420157, 420315]
    tools("amd-smi", amd_smi([*process, {"gpu": 1, "process_list": []}]))
    assert pids(amd_states()) == [both, []]
    listed = [{"gpu": 0, "bdf": buses[1].lower()}, {"gpu": 1, "bdf": buses[0].lower()}]
    tools("amd-smi", amd_smi([*process, {"gpu": 1, "process_list": []}], listed))
    assert pids(amd_states()) == [[], both]
    tools("amd-smi", amd_smi([*process, {"gpu": 1, "process_list": "N/A"}], listed))
    assert pids(amd_states()) == [None, both]
    tools("amd-smi", amd_smi(
        [*process, {"gpu": 1, "process_list": [{"process_info": "No running processes detected"}]}],
        listed))
    assert pids(amd_states()) == [[], both]
    tools("rocm-smi", rocm(2, {**running, **ROCM_PIDS}))
    assert pids(amd_states()) == [None, both], "the card of process 41 is unknown"
