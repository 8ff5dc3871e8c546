"""What devices there are and how they are: the CPU, NVIDIA and AMD cards behind one interface.

Every question is bounded in time. A card or driver that stops answering keeps its last good
values, marked with the moment of its silence.
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

_patience: dict[str, BoundedCaller[list[DeviceState]]] = {}
_list_patience: dict[DeviceKind, BoundedCaller[Listing]] = {
    kind: BoundedCaller() for kind in _LISTERS}
_known: dict[str, DeviceState] = {}
_known_lock = threading.Lock()


def inventory() -> list[Device]:
    """Return all devices, the CPU first; takes at most `LIST_S` per vendor."""
    return survey()[0]


def survey() -> tuple[list[Device], list[str]]:
    """Return all devices and one line for each vendor whose devices could not be listed."""
    devices: list[Device] = []
    problems: list[str] = []
    for kind, lister in _LISTERS.items():
        try:
            listing = _list_patience[kind].call(lister, LIST_S)
        except CallTimeout as silence:
            problems.append(f"{kind}: the driver gives {silence}")
            continue
        devices += [_as_allowed(device) for device in listing.devices]
        problems += [listing.problem] if listing.problem else []
    return devices, problems


def find(spec: str) -> Device:
    """Return the device that "auto", "cpu", "cuda:0", "hip:1" or a UUID (or its start) names;
    "cuda:0+cuda:1" is two cards for a target that needs them both.

    "auto" is the most idle usable card, the CPU where there is none. Raises InputError for a name
    that cannot be one, DeviceFault for a device that is not there or not to be used.
    """
    if "+" in spec:
        return join_cards([find(one) for one in spec.split("+")])
    devices, problems = survey()
    if spec == "auto":
        return _most_idle(devices)
    if not _SPEC.fullmatch(spec):
        raise InputError(f"{spec!r} names no device", where="device",
                         fix="auto, cpu, cuda:N, hip:N or a UUID")
    found = [device for device in devices if device.id == spec] or \
        [device for device in devices if device.kind != "cpu" and len(spec) >= 4 and
         device.uuid.lower().startswith(spec.lower())]
    if len(found) != 1:
        here = ", ".join(f"{device.id} ({device.unusable})" if device.unusable else device.id
                         for device in devices)
        what = "is not there" if not found else f"fits {len(found)} devices"
        raise DeviceFault(f"{spec} {what}", where="device",
                          fix="; ".join([f"this machine has {here}", *problems]))
    if found[0].unusable:
        raise DeviceFault(f"{spec} cannot be used: {found[0].unusable}", where="device")
    return found[0]


def same_model(first: Device) -> list[Device]:
    """Return a device and the usable ones of its very model, in order, itself in front."""
    return [first, *(one for one in inventory() if one.id != first.id and not one.unusable and
                     (one.kind, one.name, one.arch, one.memory_bytes) ==
                     (first.kind, first.name, first.arch, first.memory_bytes))]


def state(device: Device) -> DeviceState:
    """Return a device's state, within `STATE_S`."""
    return states([device])[0]


def states(devices: Sequence[Device]) -> list[DeviceState]:
    """Return the state of each device, in order, all asked at once."""
    about: dict[str, list[Device]] = {}
    for device in devices:
        about.setdefault(_question(device), []).append(device)
    answers = [_patience.setdefault(name, BoundedCaller()).ask(
        partial(_READERS[asked[0].kind], asked), STATE_S) for name, asked in about.items()]
    fresh = {one.device: one for asked, answer in zip(about.values(), answers, strict=True)
             for one in _read(asked, answer)}
    return [_remember(fresh[device.id]) for device in devices]


def _question(device: Device) -> str:
    """Name the question that a device is part of: NVIDIA's driver is asked about one card (with
    its instances of MIG) at a time, so that one that hangs silences no other; AMD's tools tell of
    all of them.
    """
    return f"nvidia {device.index}" if device.kind == "nvidia" else device.kind


def _read(asked: list[Device], answer: Callable[[], list[DeviceState]]) -> list[DeviceState]:
    try:
        return answer()
    except CallTimeout as silence:
        return [DeviceState(device=device.id, at=time.time(), silent_since=silence.since,
                            problem=str(silence)) for device in asked]


def _remember(fresh: DeviceState) -> DeviceState:
    """Keep good values; put the last good ones in the place of values that could not be had."""
    with _known_lock:
        last = _known.get(fresh.device)
        if not fresh.problem:
            _known[fresh.device] = fresh
            return fresh
        since = (last.silent_since if last else None) or fresh.silent_since or fresh.at
        base = last or fresh
        told = replace(base, problem=fresh.problem, silent_since=since)
        _known[fresh.device] = told
        return told


def _most_idle(devices: list[Device]) -> Device:
    cards = [device for device in devices if device.kind != "cpu" and not device.unusable]
    if not cards:
        return next(device for device in devices if device.kind == "cpu")

    def load(pair: tuple[Device, DeviceState]) -> tuple[bool, int, float, int, int]:
        card, now = pair
        return (bool(now.problem), len(now.processes or ()), now.utilization_pct or 0.0,
                now.memory_used or 0, card.index)

    return min(zip(cards, states(cards), strict=True), key=load)[0]


def _as_allowed(device: Device) -> Device:
    """Mark a device that CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES hides from this process."""
    names = {"nvidia": ("CUDA_VISIBLE_DEVICES",), "cpu": (),
             "amd": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")}[device.kind]
    for name in names:
        value = os.environ.get(name)
        if value is not None and not device.unusable and not _lists(value, device):
            return replace(device, unusable=f"{name}={value} hides it")
    return device


def _lists(value: str, device: Device) -> bool:
    """Return whether a list of indices and UUID starts names a device, as the runtime reads it.

    Indices are taken in the vendor tool's order, which is the runtime's where all cards are alike.
    """
    for entry in (part.strip() for part in value.split(",")):
        if entry.isdigit():
            if int(entry) == device.index:
                return True
        elif entry.startswith(("GPU-", "MIG-")):
            if device.uuid.startswith(entry):
                return True
        else:
            return False  # the first entry that means nothing ends the list
    return False
