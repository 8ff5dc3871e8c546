"""Which devices a manifest means, on this machine now."""

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
    """Return the devices that a manifest means: "auto" is the CPU for a kernel in C, else the most
    idle card, of this `model` if there is one, and all that are like it, `gpu.cards` at most.
    """
    wanted = manifest.gpu.device
    if wanted == "auto":
        first = inventory.find("cpu" if task.language == "c" else wanted)
        if model and first.name != model:
            first = next((one for one in inventory.inventory()
                          if one.name == model and not one.unusable), first)
        found = inventory.same_model(first)
    else:
        found = _there([name.strip() for name in wanted.split(",")])
    single = list(dict.fromkeys(card for one in found for card in one.cards))[:manifest.gpu.cards]
    return grouped(single, task.num_gpus)


def grouped(cards: Sequence[Device], size: int) -> tuple[Device, ...]:
    """Join cards for a target that needs several at a time; what is left over stays idle."""
    if size == 1:
        return tuple(cards)
    if cards[0].kind == "cpu" or len(cards) < size:
        here = 0 if cards[0].kind == "cpu" else len(cards)
        raise DeviceFault(f"the target needs {size} GPUs of one model, and there are {here}",
                          where="gpu.device")
    return tuple(join_cards(cards[at:at + size]) for at in range(0, len(cards) - size + 1, size))


def _there(names: Sequence[str]) -> list[Device]:
    """Find the devices of these names; of several, those that are there. Raises KoptError."""
    found: list[Device] = []
    faults: list[DeviceFault] = []
    for name in names:
        try:
            found.append(inventory.find(name))
        except DeviceFault as fault:
            faults.append(fault)
    if not found:
        raise faults[0]
    cards = [card for one in found for card in one.cards]
    if unlike := [card.id for card in cards if (card.kind, card.name, card.arch) != (
            found[0].kind, found[0].name, found[0].arch)]:
        raise InputError(f"{unlike[0]} is not of the model of {found[0].id}", where="gpu.device",
                         fix="a campaign's times are those of one model of card")
    return found
