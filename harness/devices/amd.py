"""AMD cards through the JSON output of rocm-smi or amd-smi, whichever is installed.

rocm-smi reports how many cards a process uses, but not which: that comes from amd-smi where both
are installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from harness.devices.device import Device, DeviceProcess, DeviceState, Listing
from harness.formats.json_codec import loads
from harness.formats.text import plain

TOOL_S = 4.0
FAULTS = (OSError, subprocess.SubprocessError, ValueError)
MIB = 1024 * 1024
SmiCard = dict[str, Any]
"""One card in a tool's output; keys and units differ between releases."""


def listing() -> Listing:
    """Return all AMD devices. A machine without either tool has none."""
    try:
        if shutil.which("rocm-smi"):
            return Listing(tuple(rocm_devices(_rocm_smi())))
        if shutil.which("amd-smi"):
            return Listing(tuple(amd_devices(_amd_smi("static"), _amd_smi("list"))))
    except FAULTS as error:
        return Listing(problem=f"AMD cards cannot be listed: {plain(str(error), 200)}")
    return Listing()


def states(devices: list[Device]) -> list[DeviceState]:
    """Return the state of each device, from one run of each tool."""
    try:
        if shutil.which("rocm-smi"):
            return _states_of_both(devices, _rocm_smi())
        return amd_states(devices, _amd_smi("metric"), _amd_smi("process"))
    except FAULTS as error:
        problem = plain(str(error), 200)
        return [DeviceState(device=device.id, at=time.time(), problem=problem)
                for device in devices]


def rocm_devices(output: SmiCard) -> Iterator[Device]:
    """Yield the devices of `rocm-smi --json` output (ROCm 5 to 7)."""
    for index, card in _rocm_cards(output):
        unique = _text(card, "Unique ID").lower().removeprefix("0x")
        bus = _text(card, "PCI Bus")
        name = _text(card, "Card Series", "Card series", "Device Name", "Card Model", "Card model")
        yield Device(id=f"hip:{index}", kind="amd", index=index, name=name or "AMD GPU",
                     uuid=f"GPU-{unique}" if unique else bus or f"hip:{index}",
                     arch=_text(card, "GFX Version"),
                     memory_bytes=_whole(card, "VRAM Total Memory (B)"))


def rocm_states(devices: list[Device], output: SmiCard) -> list[DeviceState]:
    """Return the state of each device from `rocm-smi --json` output.

    If a process uses only some of the cards, no card has a list of processes: the tool does not say
    which ones they are.
    """
    cards = dict(_rocm_cards(output))
    using = list(_rocm_processes(output.get("system", {})))
    everywhere = all(count >= len(cards) for count, _ in using)
    processes = tuple(process for _, process in using) if everywhere else None
    return [_rocm_state(device, cards[device.index], processes) if device.index in cards
            else _missing(device) for device in devices]


def _states_of_both(devices: list[Device], output: SmiCard) -> list[DeviceState]:
    """Return states from rocm-smi's output, with processes from amd-smi where rocm-smi has none."""
    states = rocm_states(devices, output)
    if all(state.processes is not None for state in states) or not shutil.which("amd-smi"):
        return states
    try:
        running, indices = _running(_amd_smi("process")), _amd_indices(output, _amd_smi("list"))
    except FAULTS:
        return states
    placed = {process.pid for processes in running.values() for process in processes}
    unplaced = {process.pid for _, process in _rocm_processes(output.get("system", {}))} - placed

    def processes(device: Device) -> tuple[DeviceProcess, ...] | None:
        on_card = running.get(indices.get(device.index, -1))
        return None if unplaced and not on_card else on_card

    return [state if state.problem else replace(state, processes=processes(device))
            for device, state in zip(devices, states, strict=True)]


def _amd_indices(output: SmiCard, listed: list[SmiCard]) -> dict[int, int]:
    """Return amd-smi's index of each rocm-smi index: by PCI address if listed, else the same."""
    by_bus = {bus: _index(card) for card in listed if (bus := _text(card, "bdf").lower())}
    return {index: by_bus.get(_text(card, "PCI Bus").lower(), -1) if by_bus else index
            for index, card in _rocm_cards(output)}


def _rocm_state(device: Device, card: SmiCard,
                processes: tuple[DeviceProcess, ...] | None) -> DeviceState:
    return DeviceState(
        device=device.id, at=time.time(), utilization_pct=_number(card, "GPU use (%)"),
        memory_used=_whole(card, "VRAM Total Used Memory (B)"),
        memory_total=_whole(card, "VRAM Total Memory (B)"),
        temperature_c=_number(card, "Temperature (Sensor junction) (C)",
                              "Temperature (Sensor edge) (C)"),
        power_w=_number(card, "Current Socket Graphics Package Power (W)",
                        "Average Graphics Package Power (W)"),
        power_limit_w=_number(card, "Max Graphics Package Power (W)"),
        clock_mhz=_number(card, "sclk clock speed:"), processes=processes)


def _rocm_cards(output: SmiCard) -> Iterator[tuple[int, SmiCard]]:
    for key, card in output.items():
        if (match := re.fullmatch(r"card(\d+)", key)) and isinstance(card, dict):
            yield int(match[1]), card


def _rocm_processes(system: SmiCard) -> Iterator[tuple[int, DeviceProcess]]:
    """Yield (number of cards, process) of each process that uses a GPU."""
    for key, value in system.items():
        fields = [field.strip() for field in str(value).split(",")]
        if (match := re.fullmatch(r"PID(\d+)", key)) and len(fields) > 2 and fields[1] != "0":
            memory = int(fields[2]) if fields[2].isdigit() else None
            count = int(fields[1]) if fields[1].isdigit() else 1
            yield count, DeviceProcess(pid=int(match[1]), name=plain(fields[0], 40),
                                       memory_bytes=memory)


def amd_devices(static: list[SmiCard], listed: list[SmiCard]) -> Iterator[Device]:
    """Yield the devices of `amd-smi static` and `amd-smi list`."""
    uuids = {_index(card): _text(card, "uuid") for card in listed}
    for card in static:
        asic, index = _part(card, "asic"), _index(card)
        serial = _text(asic, "asic_serial").lower().removeprefix("0x")
        yield Device(id=f"hip:{index}", kind="amd", index=index,
                     name=_text(asic, "market_name") or "AMD GPU",
                     uuid=f"GPU-{serial}" if serial else uuids.get(index) or f"hip:{index}",
                     arch=_text(asic, "target_graphics_version"),
                     memory_bytes=_bytes(_part(card, "vram").get("size")))


def amd_states(devices: list[Device], metric: list[SmiCard],
               process: list[SmiCard]) -> list[DeviceState]:
    """Return the state of each device from `amd-smi metric` and `amd-smi process`."""
    cards = {_index(card): card for card in metric}
    running = _running(process)
    return [_amd_state(device, cards[device.index], running.get(device.index))
            if device.index in cards else _missing(device) for device in devices]


def _amd_state(device: Device, card: SmiCard,
               processes: tuple[DeviceProcess, ...] | None) -> DeviceState:
    usage, memory = _part(card, "usage"), _part(card, "mem_usage")
    power, heat, clock = _part(card, "power"), _part(card, "temperature"), _part(card, "clock")
    throttled = _text(power, "throttle_status") == "THROTTLED"
    return DeviceState(
        device=device.id, at=time.time(), utilization_pct=_number(usage, "gfx_activity"),
        memory_used=_bytes(memory.get("used_vram")), memory_total=_bytes(memory.get("total_vram")),
        temperature_c=_number(heat, "hotspot", "edge"),
        power_w=_number(power, "socket_power", "average_socket_power", "current_socket_power"),
        clock_mhz=_number(_part(clock, "gfx_0"), "clk"),
        processes=processes, throttle=("throttled",) if throttled else ())


def _running(process: list[SmiCard]) -> dict[int, tuple[DeviceProcess, ...]]:
    """Return the processes of each card, by index, from `amd-smi process`."""
    return {_index(card): tuple(_amd_processes(entries)) for card in process
            if isinstance(entries := card.get("process_list"), list) and _index(card) >= 0}


def _amd_processes(running: list[SmiCard]) -> Iterator[DeviceProcess]:
    for entry in running:
        info = _part(entry, "process_info") if isinstance(entry, dict) else {}
        if isinstance(info.get("pid"), int):
            memory = info.get("mem_usage", _part(info, "memory_usage").get("vram_mem"))
            yield DeviceProcess(pid=info["pid"], name=_text(info, "name"),
                                memory_bytes=_bytes(memory))


def cards(output: Any) -> list[SmiCard]:
    """Return the cards of amd-smi output: a list, or in newer releases a list under gpu_data."""
    entries = output.get("gpu_data", []) if isinstance(output, dict) else output
    return [card for card in entries if isinstance(card, dict)]


def _missing(device: Device) -> DeviceState:
    return DeviceState(device=device.id, at=time.time(), problem="the card is no longer listed")


def _part(card: SmiCard, key: str) -> SmiCard:
    value = card.get(key)
    return value if isinstance(value, dict) else {}


def _index(card: SmiCard) -> int:
    value = card.get("gpu")
    return value if isinstance(value, int) else -1


def _text(card: SmiCard, *keys: str) -> str:
    for key in keys:
        value = card.get(key)
        if isinstance(value, str) and value not in ("", "N/A", "Not supported"):
            return plain(value, 80)
    return ""


def _number(card: SmiCard, *keys: str) -> float | None:
    """Return the first number under these keys: from 37, "37.0", "(1402Mhz)" or {"value": 37}."""
    for key in keys:
        value = card.get(key)
        value = value.get("value") if isinstance(value, dict) else value
        if match := re.search(r"-?\d+(\.\d+)?", str(value)):
            return float(match[0])
    return None


def _whole(card: SmiCard, key: str) -> int | None:
    number = _number(card, key)
    return None if number is None else int(number)


def _bytes(value: Any) -> int | None:
    """Return the bytes of a value such as {"value": 64, "unit": "MB"}; by MB the tools mean MiB."""
    if not isinstance(value, dict) or not isinstance(value.get("value"), int):
        return None
    unit = str(value.get("unit", "B")).upper()
    factor = {"B": 1, "KB": 1024, "MB": MIB, "GB": 1024 * MIB}.get(unit)
    return None if factor is None else value["value"] * factor


def _rocm_smi() -> SmiCard:
    output = _run("rocm-smi", "--showproductname", "--showuniqueid", "--showbus", "--showuse",
                  "--showmeminfo", "vram", "--showtemp", "--showpower", "--showmaxpower",
                  "--showclocks", "--showpids", "--json")
    return output if isinstance(output, dict) else {}


def _amd_smi(what: str) -> list[SmiCard]:
    return cards(_run("amd-smi", what, "--json"))


def _run(*argv: str) -> Any:
    try:
        process = subprocess.run(argv, capture_output=True, timeout=TOOL_S, check=False,
                                 stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise ValueError(f"{argv[0]} gave no answer within {TOOL_S:g} s") from None
    start = min((at for at in (process.stdout.find(b"{"), process.stdout.find(b"[")) if at >= 0),
                default=-1)
    if start < 0:
        reason = plain(process.stderr.decode(errors="replace"), 200).strip().splitlines()
        raise ValueError(f"{argv[0]} printed no JSON" + (f": {reason[-1]}" if reason else ""))
    return loads(process.stdout[start:])
