"""Chooses the devices that a manifest names on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from engine.manifest.schema import Manifest
from harness.benchmark.spec.command_target import CommandTarget
from harness.devices import inventory
from harness.devices.device import Device, join_cards
from harness.errors import DeviceFault, InputError
from harness.target import Target


def devices_for(manifest: Manifest, task: Target | CommandTarget, *,
                model: str = "") -> tuple[Device, ...]:
    """Return the manifest's devices, `gpu.cards` at most.

    "auto" is the CPU for a kernel in C, else the most idle card (of this `model`, if there is one)
    and all others of its model. Raises KoptError.
    """
    name = manifest.gpu.device
    if name == "auto":
        first = inventory.find("cpu" if task.language == "c" else name)
        if model and first.name != model:
            first = next((device for device in inventory.inventory()
                          if device.name == model and not device.unusable), first)
        devices = inventory.same_model(first)
    else:
        devices = _present([part.strip() for part in name.split(",")])
    cards = list(dict.fromkeys(card for device in devices for card in device.cards))
    return group_cards(cards[:manifest.gpu.cards], task.num_gpus)


def group_cards(cards: Sequence[Device], size: int) -> tuple[Device, ...]:
    """Join cards for a target that needs several at a time; surplus cards stay idle."""
    if size == 1:
        return tuple(cards)
    if cards[0].kind == "cpu" or len(cards) < size:
        count = 0 if cards[0].kind == "cpu" else len(cards)
        raise DeviceFault(f"the target needs {size} GPUs of one model, and there are {count}",
                          where="gpu.device")
    return tuple(join_cards(cards[at:at + size]) for at in range(0, len(cards) - size + 1, size))


def _present(names: Sequence[str]) -> list[Device]:
    """Return the named devices that are present. Raises KoptError if none is or models differ."""
    devices: list[Device] = []
    faults: list[DeviceFault] = []
    for name in names:
        try:
            devices.append(inventory.find(name))
        except DeviceFault as fault:
            faults.append(fault)
    if not devices:
        raise faults[0]
    first = devices[0]
    cards = [card for device in devices for card in device.cards]
    if others := [card.id for card in cards if (card.kind, card.name, card.arch) != (
            first.kind, first.name, first.arch)]:
        raise InputError(f"{others[0]} is not the same model as {first.id}", where="gpu.device",
                         fix="name cards of one model: times of two models cannot be compared")
    return devices
