"""`kopt gpus`: list the devices, their states, and their peak rates if those were measured."""

from __future__ import annotations

import argparse

import msgspec

from harness.devices import inventory
from harness.devices.device import Device, DeviceState
from harness.formats.quantities import GIB
from harness.roofline import measured_peaks
from harness.roofline.measured_peaks import GpuCeilings
from kopt_tui.cli.output import print_json, print_note, print_table
from kopt_tui.cli.parser import add_json
from kopt_tui.snapshot.device_sampler import rounded


class ListedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device, its state now, and its peak rates if they were measured."""

    device: Device
    state: DeviceState
    ceilings: GpuCeilings | None


class ListedDevices(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of this machine; `problems` say why some may be missing."""

    devices: tuple[ListedDevice, ...]
    problems: tuple[str, ...]


HEADERS = ("id", "name", "arch", "use", "memory", "temp", "power", "clock", "processes", "note")


def add(parser: argparse.ArgumentParser) -> None:
    add_json(parser, ListedDevices)


def run(args: argparse.Namespace) -> int:
    devices, problems = inventory.survey()
    listed = tuple(
        ListedDevice(device=device, state=state, ceilings=measured_peaks.cached(device))
        for device, state in zip(devices, inventory.states(devices), strict=True))
    if args.json:
        print_json(ListedDevices(problems=tuple(problems), devices=listed))
        return 0
    print_table(HEADERS, map(_row, listed), right="use temp power clock",
                spare=("clock", "power", "temp", "arch", "processes"))
    for problem in problems:
        print_note(problem)
    return 0


def _row(listed: ListedDevice) -> tuple[str, ...]:
    device, state, peaks = listed.device, listed.state, listed.ceilings
    processes = [f"{process.name or '?'} ({process.pid})" for process in state.processes or ()]
    notes = [device.unusable, device.note, state.problem, ", ".join(state.slowed),
             f"{device.cores} cores" if device.cores else "",
             f"measured: {measured_peaks.summary(peaks)}" if peaks else ""]
    return (device.id, device.name, device.arch, rounded(state.utilization_pct, 1, "%"),
            _memory(state), rounded(state.temperature_c, 1, " °C"), rounded(state.power_w, 1, " W"),
            rounded(state.clock_mhz, 1, " MHz"), ", ".join(processes),
            "; ".join(note for note in notes if note))


def _memory(state: DeviceState) -> str:
    if state.memory_used is None or state.memory_total is None:
        return ""
    return f"{state.memory_used / GIB:.1f} of {state.memory_total / GIB:.1f} GiB"
