"""`kopt gpus`: devices, how they are, and what they were measured to reach, if they were."""

from __future__ import annotations

import argparse
import sys

from harness.devices import inventory
from harness.devices.device import Device, DeviceState
from harness.formats.text import plain
from harness.roofline import measured_peaks
from harness.roofline.measured_peaks import GpuCeilings
from kopt_tui.cli.json_output import print_json
from kopt_tui.cli.parser import Commands, add_json
from kopt_tui.cli.text_table import print_table

GIB = 1 << 30
HEADERS = ("id", "name", "arch", "use", "memory", "temp", "power", "clock", "processes", "note")


def add(sub: Commands) -> None:
    add_json(sub.add_parser("gpus"))


def run(args: argparse.Namespace) -> int:
    listed, problems = inventory.survey()
    states = inventory.states(listed)
    reached = [measured_peaks.cached(device) for device in listed]
    if args.json:
        print_json({"devices": [{"device": device, "state": state, "ceilings": found}
                          for device, state, found in zip(listed, states, reached, strict=True)],
              "problems": problems})
        return 0
    print_table(HEADERS, map(_row, listed, states, reached), right="use temp power clock")
    for problem in problems:
        print(f"kopt: {plain(problem)}", file=sys.stderr)
    return 0


def _row(device: Device, state: DeviceState, reached: GpuCeilings | None) -> tuple[str, ...]:
    others = [f"{one.name or '?'} ({one.pid})" for one in state.processes or ()]
    notes = [device.unusable, device.note, state.problem, ", ".join(state.slowed),
             f"{device.cores} cores" if device.cores else "",
             f"measured: {measured_peaks.summary(reached)}" if reached else ""]
    return (device.id, device.name, device.arch, _with(state.utilization_pct, "%"),
            _memory(state), _with(state.temperature_c, " °C"), _with(state.power_w, " W"),
            _with(state.clock_mhz, " MHz"), ", ".join(others),
            "; ".join(note for note in notes if note))


def _memory(state: DeviceState) -> str:
    if state.memory_used is None or state.memory_total is None:
        return ""
    return f"{state.memory_used / GIB:.1f} of {state.memory_total / GIB:.1f} GiB"


def _with(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.0f}{unit}"
