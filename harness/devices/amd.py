"""AMD cards through the JSON output of rocm-smi or amd-smi, whichever is installed.

rocm-smi reports how many cards a process uses, but not which: that comes from amd-smi where both
are installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from harness.devices.device import Device, DeviceProcess, DeviceState, Listing
from harness.formats.json_codec import loads
from harness.formats.text import plain

TOOL_S = 4.0
FAULTS = (OSError, subprocess.SubprocessError, ValueError)
UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
"""Bytes of amd-smi's units; by MB it means MiB."""
SmiCard = Mapping[str, Any]
"""A card in a tool's output, nested keys joined by dots; keys and units differ by release."""
Keys = Mapping[str, tuple[str, ...]]
"""The keys under which a tool's output may have a value, by what it is."""

ROCM_SMI: Keys = {
    "name": ("Card Series", "Card series", "Device Name", "Card Model", "Card model"),
    "serial": ("Unique ID",), "id": ("PCI Bus",), "arch": ("GFX Version",),
    "memory": ("VRAM Total Memory (B)",), "memory_used": ("VRAM Total Used Memory (B)",),
    "memory_total": ("VRAM Total Memory (B)",), "utilization": ("GPU use (%)",),
    "temperature": ("Temperature (Sensor junction) (C)", "Temperature (Sensor edge) (C)"),
    "power": ("Current Socket Graphics Package Power (W)", "Average Graphics Package Power (W)"),
    "power_limit": ("Max Graphics Package Power (W)",), "clock": ("sclk clock speed:",),
    "throttle": (),
}
AMD_SMI: Keys = {
    "name": ("asic.market_name",), "serial": ("asic.asic_serial",), "id": ("uuid",),
    "arch": ("asic.target_graphics_version",), "memory": ("vram.size",),
    "memory_used": ("mem_usage.used_vram",), "memory_total": ("mem_usage.total_vram",),
    "utilization": ("usage.gfx_activity",),
    "temperature": ("temperature.hotspot", "temperature.edge"),
    "power": ("power.socket_power", "power.average_socket_power", "power.current_socket_power"),
    "power_limit": (), "clock": ("clock.gfx_0.clk",), "throttle": ("power.throttle_status",),
}


def listing() -> Listing:
    """Return all AMD devices. A machine without either tool has none."""
    try:
        if shutil.which("rocm-smi"):
            return Listing(devices(rocm_cards(_rocm_smi()), ROCM_SMI))
        if shutil.which("amd-smi"):
            return Listing(devices(_amd_smi("static", "list"), AMD_SMI))
    except FAULTS as error:
        return Listing(problem=f"AMD cards cannot be listed: {plain(str(error), 200)}")
    return Listing()


def states(devices: list[Device]) -> list[DeviceState]:
    """Return the state of each device, from one run of each tool."""
    try:
        if shutil.which("rocm-smi"):
            return _states_from_both_tools(devices, _rocm_smi())
        cards, running = _amd_smi("metric"), _running(_amd_smi("process"))
        return [_state(device, cards.get(device.index), AMD_SMI, running.get(device.index))
                for device in devices]
    except FAULTS as error:
        problem = plain(str(error), 200)
        return [DeviceState(device=device.id, at=time.time(), problem=problem)
                for device in devices]


def devices(cards: Mapping[int, SmiCard], keys: Keys) -> tuple[Device, ...]:
    """Return the devices of a tool's cards, by index."""
    listed = []
    for index, card in cards.items():
        serial = _text(card, keys["serial"]).lower().removeprefix("0x")
        listed.append(Device(
            id=f"hip:{index}", kind="amd", index=index,
            name=_text(card, keys["name"]) or "AMD GPU", arch=_text(card, keys["arch"]),
            uuid=f"GPU-{serial}" if serial else _text(card, keys["id"]) or f"hip:{index}",
            memory_bytes=_bytes(card, keys["memory"])))
    return tuple(listed)


def rocm_states(devices: list[Device], output: dict[str, Any]) -> list[DeviceState]:
    """Return the state of each device from `rocm-smi --json` output (ROCm 5 to 7).

    If a process uses only some of the cards, no card has a list of processes: the tool does not say
    which ones they are.
    """
    cards, using = rocm_cards(output), list(_rocm_processes(output.get("system", {})))
    everywhere = all(count >= len(cards) for count, _ in using)
    processes = tuple(process for _, process in using) if everywhere else None
    return [_state(device, cards.get(device.index), ROCM_SMI, processes) for device in devices]


def _states_from_both_tools(devices: list[Device], output: dict[str, Any]) -> list[DeviceState]:
    """Return states from rocm-smi's output, with processes from amd-smi where rocm-smi has none."""
    states = rocm_states(devices, output)
    if all(state.processes is not None for state in states) or not shutil.which("amd-smi"):
        return states
    try:
        running, listed = _running(_amd_smi("process")), _amd_smi("list")
    except FAULTS:
        return states
    by_bus = {bus: index for index, card in listed.items()
              if (bus := _text(card, ("bdf",)).lower())}
    # Without any, both tools are taken to number the cards alike.
    indices = {index: by_bus.get(_text(card, ("PCI Bus",)).lower(), -1) if by_bus else index
               for index, card in rocm_cards(output).items()}
    placed = {process.pid for processes in running.values() for process in processes}
    unplaced = {process.pid for _, process in _rocm_processes(output.get("system", {}))} - placed

    def processes(device: Device) -> tuple[DeviceProcess, ...] | None:
        on_card = running.get(indices.get(device.index, -1))
        return None if unplaced and not on_card else on_card

    return [state if state.problem else replace(state, processes=processes(device))
            for device, state in zip(devices, states, strict=True)]


def _state(device: Device, card: SmiCard | None, keys: Keys,
           processes: tuple[DeviceProcess, ...] | None) -> DeviceState:
    if card is None:
        return DeviceState(device=device.id, at=time.time(), problem="the card is no longer listed")
    throttled = _text(card, keys["throttle"]) == "THROTTLED"
    return DeviceState(
        device=device.id, at=time.time(), utilization_pct=_number(card, keys["utilization"]),
        memory_used=_bytes(card, keys["memory_used"]),
        memory_total=_bytes(card, keys["memory_total"]),
        temperature_c=_number(card, keys["temperature"]), power_w=_number(card, keys["power"]),
        power_limit_w=_number(card, keys["power_limit"]), clock_mhz=_number(card, keys["clock"]),
        processes=processes, throttle=("throttled",) if throttled else ())


def rocm_cards(output: dict[str, Any]) -> dict[int, SmiCard]:
    """Return the cards of rocm-smi's output by index."""
    return {int(match[1]): card for key, card in output.items()
            if (match := re.fullmatch(r"card(\d+)", key)) and isinstance(card, dict)}


def _rocm_processes(system: dict[str, Any]) -> Iterator[tuple[int, DeviceProcess]]:
    """Yield (number of cards, process) of each process that uses a GPU."""
    for key, value in system.items():
        fields = [field.strip() for field in str(value).split(",")]
        if (match := re.fullmatch(r"PID(\d+)", key)) and len(fields) > 2 and fields[1] != "0":
            memory = int(fields[2]) if fields[2].isdigit() else None
            count = int(fields[1]) if fields[1].isdigit() else 1
            yield count, DeviceProcess(pid=int(match[1]), name=plain(fields[0], 40),
                                       memory_bytes=memory)


def _running(cards: Mapping[int, SmiCard]) -> dict[int, tuple[DeviceProcess, ...]]:
    """Return the processes of each card, by index, from `amd-smi process`."""
    memory = ("process_info.mem_usage", "process_info.memory_usage.vram_mem")
    running: dict[int, tuple[DeviceProcess, ...]] = {}
    for index, card in cards.items():
        if isinstance(listed := card.get("process_list"), list):
            entries = [_flat(entry) for entry in listed if isinstance(entry, dict)]
            running[index] = tuple(
                DeviceProcess(pid=pid, name=_text(entry, ("process_info.name",)),
                              memory_bytes=_bytes(entry, memory))
                for entry in entries if isinstance(pid := entry.get("process_info.pid"), int))
    return running


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a card's values with nested keys joined by dots; a number with its unit is a value."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        is_group = isinstance(value, dict) and "value" not in value
        flat |= _flat(value, f"{prefix}{key}.") if is_group else {prefix + key: value}
    return flat


def _text(card: SmiCard, keys: Iterable[str]) -> str:
    for key in keys:
        value = card.get(key)
        if isinstance(value, str) and value not in ("", "N/A", "Not supported"):
            return plain(value, 80)
    return ""


def _number(card: SmiCard, keys: Iterable[str]) -> float | None:
    """Return the first number under these keys: from 37, "37.0", "(1402Mhz)" or {"value": 37}."""
    for key in keys:
        value = card.get(key)
        value = value.get("value") if isinstance(value, dict) else value
        if match := re.search(r"-?\d+(\.\d+)?", str(value)):
            return float(match[0])
    return None


def _bytes(card: SmiCard, keys: Iterable[str]) -> int | None:
    """Return the first size under these keys: from "1024" or {"value": 64, "unit": "MB"}."""
    for value in (card.get(key) for key in keys):
        if isinstance(value, str) and value.isdigit():
            return int(value)
        if isinstance(value, dict) and isinstance(number := value.get("value"), int):
            factor = UNITS.get(str(value.get("unit", "B")).upper())
            return None if factor is None else number * factor
    return None


def _rocm_smi() -> dict[str, Any]:
    output = _run("rocm-smi", "--showproductname", "--showuniqueid", "--showbus", "--showuse",
                  "--showmeminfo", "vram", "--showtemp", "--showpower", "--showmaxpower",
                  "--showclocks", "--showpids", "--json")
    return output if isinstance(output, dict) else {}


def _amd_smi(*commands: str) -> dict[int, SmiCard]:
    """Return the cards by index.

    The tool prints them as a list, newer releases as a list under gpu_data.
    """
    cards: dict[int, SmiCard] = {}
    for command in commands:
        output = _run("amd-smi", command, "--json")
        for card in output.get("gpu_data", []) if isinstance(output, dict) else output:
            if isinstance(card, dict) and isinstance(index := card.get("gpu"), int):
                cards[index] = {**cards.get(index, {}), **_flat(card)}
    return cards


def _run(*argv: str) -> Any:
    try:
        process = subprocess.run(argv, capture_output=True, timeout=TOOL_S, check=False,
                                 stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise ValueError(f"{argv[0]} did not answer within {TOOL_S:g} s") from None
    start = min((at for at in (process.stdout.find(b"{"), process.stdout.find(b"[")) if at >= 0),
                default=-1)
    if start < 0:
        reason = plain(process.stderr.decode(errors="replace"), 200).strip().splitlines()
        raise ValueError(f"{argv[0]} printed no JSON" + (f": {reason[-1]}" if reason else ""))
    return loads(process.stdout[start:])
