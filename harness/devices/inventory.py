"""List, find and read devices: the CPU, NVIDIA and AMD cards.

Every request is bounded in time. When a card or driver stops answering, its last good values stay,
marked with the time since which it is silent.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from harness.devices import amd, cpu, nvidia
from harness.devices.call_timeout import BoundedCaller, CallTimeout
from harness.devices.device import Device, DeviceKind, DeviceState, Listing, join_cards
from harness.errors import DeviceFault, InputError

LIST_S = 20.0
STATE_S = 5.0
_LISTERS: dict[DeviceKind, Callable[[], Listing]] = {
    "cpu": cpu.listing, "nvidia": nvidia.listing, "amd": amd.listing}
_READERS: dict[DeviceKind, Callable[[list[Device]], list[DeviceState]]] = {
    "cpu": cpu.states, "nvidia": nvidia.states, "amd": amd.states}
_SPEC = re.compile(r"cpu|(cuda|hip):\d+(:\d+)?|(gpu-|mig-)?[0-9a-f-]{4,}[0-9a-f:./-]*",
                   re.IGNORECASE)

_state_callers: dict[str, BoundedCaller[list[DeviceState]]] = {}
_list_callers: dict[DeviceKind, BoundedCaller[Listing]] = {
    kind: BoundedCaller() for kind in _LISTERS}
_known: dict[str, DeviceState] = {}
_known_lock = threading.Lock()


def inventory() -> list[Device]:
    """Return all devices, the CPU first; takes at most `LIST_S` per vendor."""
    return survey()[0]


def survey() -> tuple[list[Device], list[str]]:
    """Return all devices, and one line for each vendor whose devices could not be listed."""
    devices: list[Device] = []
    problems: list[str] = []
    for kind, lister in _LISTERS.items():
        try:
            listing = _list_callers[kind].start(lister, LIST_S)()
        except CallTimeout as timeout:
            problems.append(f"{kind}: driver: {timeout}")
            continue
        devices += [_mark_hidden(device) for device in listing.devices]
        problems += [listing.problem] if listing.problem else []
    return devices, problems


def find(spec: str) -> Device:
    """Return the device of a name: "auto", "cpu", "cuda:0", "hip:1" or a UUID (or its start).

    "cuda:0+cuda:1" joins two cards for a target that needs both. "auto" is the most idle usable
    card, or the CPU if there is none. Raises InputError if no device can have this name,
    DeviceFault if the device does not exist or is unusable.
    """
    if "+" in spec:
        return join_cards([find(name) for name in spec.split("+")])
    devices, problems = survey()
    if spec == "auto":
        return _most_idle(devices)
    if not _SPEC.fullmatch(spec):
        raise InputError(f"{spec!r} is not a device name", where="device",
                         fix="use auto, cpu, cuda:N, hip:N or a UUID")
    matches = [device for device in devices if device.id == spec] or \
        [device for device in devices if device.kind != "cpu" and len(spec) >= 4 and
         device.uuid.lower().startswith(spec.lower())]
    if len(matches) != 1:
        available = ", ".join(f"{device.id} ({device.unusable})" if device.unusable else device.id
                              for device in devices)
        what = "does not exist" if not matches else f"matches {len(matches)} devices"
        raise DeviceFault(f"{spec} {what}", where="device",
                          fix="; ".join([f"this machine has {available}", *problems]))
    if matches[0].unusable:
        raise DeviceFault(f"{spec} cannot be used: {matches[0].unusable}", where="device")
    return matches[0]


def same_model(first: Device) -> list[Device]:
    """Return a device, then the other usable devices of exactly its model, in order."""
    model = (first.kind, first.name, first.arch, first.memory_bytes)
    return [first, *(device for device in inventory()
                     if device.id != first.id and not device.unusable and
                     (device.kind, device.name, device.arch, device.memory_bytes) == model)]


def state(device: Device) -> DeviceState:
    """Return a device's state, within `STATE_S`."""
    return states([device])[0]


def states(devices: Sequence[Device]) -> list[DeviceState]:
    """Return the state of each device, in order; all are read at the same time."""
    groups: dict[str, list[Device]] = {}
    for device in devices:
        # each NVIDIA card (with its MIG instances) alone, so that one that hangs blocks no other;
        # AMD's tools read all cards at once
        name = f"nvidia {device.index}" if device.kind == "nvidia" else device.kind
        groups.setdefault(name, []).append(device)
    readings = [_state_callers.setdefault(name, BoundedCaller()).start(
        partial(_READERS[group[0].kind], group), STATE_S) for name, group in groups.items()]
    fresh: dict[str, DeviceState] = {}
    for group, reading in zip(groups.values(), readings, strict=True):
        try:
            fresh |= {state.device: state for state in reading()}
        except CallTimeout as timeout:
            fresh |= {device.id: DeviceState(
                device=device.id, at=time.time(), silent_since=timeout.since, problem=str(timeout))
                for device in group}
    return [_merge_known(fresh[device.id]) for device in devices]


def is_idle(device: Device) -> bool | None:
    """Return whether no kernel runs on a device's cards; None if they cannot tell."""
    used = [state.utilization_pct for state in states(device.cards)]
    return False if any(used) else None if None in used else True


def _merge_known(fresh: DeviceState) -> DeviceState:
    """Remember a good state; replace a failed one by the last good values and its problem."""
    with _known_lock:
        last = _known.get(fresh.device)
        if not fresh.problem:
            _known[fresh.device] = fresh
            return fresh
        since = (last.silent_since if last else None) or fresh.silent_since or fresh.at
        merged = replace(last or fresh, problem=fresh.problem, silent_since=since)
        _known[fresh.device] = merged
        return merged


def _most_idle(devices: list[Device]) -> Device:
    cards = [device for device in devices if device.kind != "cpu" and not device.unusable]
    if not cards:
        return next(device for device in devices if device.kind == "cpu")

    def load(pair: tuple[Device, DeviceState]) -> tuple[bool, int, float, int, int]:
        card, now = pair
        return (bool(now.problem), len(now.processes or ()), now.utilization_pct or 0.0,
                now.memory_used or 0, card.index)

    return min(zip(cards, states(cards), strict=True), key=load)[0]


def _mark_hidden(device: Device) -> Device:
    """Mark a device as unusable if CUDA_VISIBLE_DEVICES or its like hides it from this process."""
    names = {"nvidia": ("CUDA_VISIBLE_DEVICES",), "cpu": (),
             "amd": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")}[device.kind]
    for name in names:
        value = os.environ.get(name)
        if value is not None and not device.unusable and not _lists(value, device):
            return replace(device, unusable=f"{name}={value} hides it")
    return device


def _lists(value: str, device: Device) -> bool:
    """Return whether a list of indices and UUID prefixes names a device, by the runtime's rules.

    Indices count in the vendor tool's order, which is the runtime's where all cards are alike.
    """
    for entry in (part.strip() for part in value.split(",")):
        if entry.isdigit():
            if int(entry) == device.index:
                return True
        elif entry.startswith(("GPU-", "MIG-")):
            if device.uuid.startswith(entry):
                return True
        else:
            return False  # the runtime ignores everything after the first invalid entry
    return False
