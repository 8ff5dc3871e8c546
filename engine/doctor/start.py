"""What a campaign that starts here and now should be told: what may end it, or narrow it."""

from __future__ import annotations

from collections.abc import Sequence

from engine.doctor import machine, session
from engine.doctor.machine_check import MachineCheck
from harness.devices.device import Device


def notices(devices: Sequence[Device]) -> list[MachineCheck]:
    """Return what stands in a campaign's way: a Slurm job that ends, a login whose end kills it,
    cards that are hidden, shared out or take one process only; and a container and its limits.
    """
    found = [check for check in (session.slurm(), session.logind()) if check.status == "warn"]
    found += [check for check in (session.container(),) if check.status == "note"]
    cards = [card for device in devices for card in device.cards if card.kind != "cpu"]
    if cards:
        found += [check for check in (machine.visibility(), *machine.cards(cards, []))
                  if check.status in ("note", "warn")]
    return found
