"""Warnings for a campaign that starts on this machine now: what may end or limit it."""

from __future__ import annotations

from collections.abc import Sequence

from engine.doctor import machine, surroundings
from engine.doctor.machine_check import MachineCheck
from harness.devices.device import Device


def notices(devices: Sequence[Device]) -> list[MachineCheck]:
    """Return the checks that a campaign's log should show.

    These are a Slurm job or a login session whose end kills the campaign, a container and its
    limits, and GPUs that are hidden, shared or restricted to one process.
    """
    notable = [check for check in (surroundings.slurm(), surroundings.logind())
               if check.status == "warn"]
    notable += [check for check in (surroundings.container(),) if check.status == "note"]
    cards = [card for device in devices for card in device.cards if card.kind != "cpu"]
    if cards:
        notable += [check for check in (machine.visibility(), *machine.cards(cards, []))
                    if check.status in ("note", "warn")]
    return notable
