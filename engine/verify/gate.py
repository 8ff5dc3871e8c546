"""The gate: whether a card may be used now, as its driver tells it. Nothing is preempted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from harness.devices import inventory
from harness.devices.device import Device, DeviceProcess, DeviceState
from harness.devices.monitoring import interference
from harness.devices.monitoring.tenants import StrangerDetector
from harness.verdict import Verdict

NEAR_ZERO_PCT = 5.0
LOW_MEMORY = 0.1
"""A share of the card's memory that driver and display may hold."""
STABLE_BYTES = 64 << 20
"""Memory that changes by no more between two looks is somebody's who does not compute."""
LOOKS = 3
SETTLE_S = 1.0
"""Between two looks; a process that has just ended is listed for a moment yet."""


def why_busy(now: DeviceState, before: DeviceState | None = None, *,
             just_left: bool = False) -> str:
    """Say why a card is not idle, empty when it is.

    Idle is: no compute process, utilization near zero, memory low or, compared with the look
    `before`, stable. What we have `just_left` still shows a utilization that was ours. Where its
    processes cannot be told, utilization has to be known and memory low.
    """
    if now.problem:
        return now.problem
    if now.slowed:
        return f"slowed down: {', '.join(now.slowed)}"
    if now.processes:
        return _computes(now.processes)
    if now.processes is None and now.utilization_pct is None:
        return "cannot tell: neither its processes nor its utilization are known"
    if (now.utilization_pct or 0.0) > NEAR_ZERO_PCT and not just_left:
        return f"{now.utilization_pct:.0f} % in use"
    return _memory(now, before)


def why_taken(now: DeviceState, near: StrangerDetector) -> str:
    """Say why a card that kopts work on is to have no more work, empty when it may.

    What it shows of use, memory and heat is theirs: a fault counts, and a process of nobody known.
    """
    if now.problem:
        return now.problem
    strangers = near.strangers(one.pid for one in now.processes or ())
    return _computes([one for one in now.processes or () if one.pid in strangers])


def doubtful(verdict: Verdict) -> bool:
    """Return whether a verdict counts only if its card is fit and nobody else's afterwards."""
    return not (verdict.valid and verdict.correct) or bool(company(verdict))


def spoilt(verdict: Verdict) -> str:
    """Say why a verdict cannot count, empty when it can: a stranger was on its card all the while,
    and may have left it.
    """
    return next((one.detail for one in verdict.evidence if one.kind == interference.STRANGER), "")


def company(verdict: Verdict) -> str:
    """Return what a verdict says of processes that were on its card from the start, or nothing."""
    return next((one.detail for one in verdict.evidence if one.kind == interference.COMPANY), "")


def _computes(processes: Sequence[DeviceProcess]) -> str:
    if not processes:
        return ""
    one = processes[0]
    more = f" and {len(processes) - 1} more" if len(processes) > 1 else ""
    return f"process {one.pid}{f' ({one.name})' if one.name else ''}{more} computes there"


def _memory(now: DeviceState, before: DeviceState | None) -> str:
    used = now.memory_used or 0
    if now.memory_total is None or used <= LOW_MEMORY * now.memory_total:
        return ""
    told = f"{used / (1 << 30):.1f} GiB of its memory in use"
    if before is None or before.memory_used is None or now.processes is None:
        return told
    return f"{told}, and it changes" if abs(used - before.memory_used) > STABLE_BYTES else ""


def look(device: Device, *, just_left: bool = False, near: StrangerDetector | None = None,
         pause: Callable[[float], object] = time.sleep,
         state: Callable[[Device], DeviceState] = inventory.state) -> str:
    """Look at a device, some seconds long if need be; say why it is busy, empty when it is idle.

    `near` tells who is who on a card that kopts work on: nothing else closes that one. The CPU is
    never busy: its timing deals with other load.
    """
    if device.kind == "cpu":
        return ""
    before: dict[str, DeviceState] = {}
    why = ""
    for number in range(LOOKS):
        if number:
            pause(SETTLE_S)
        now = {card.id: state(card) for card in device.cards}
        whys = [why_taken(one, near) if near is not None
                else why_busy(one, before.get(name), just_left=just_left)
                for name, one in now.items()]
        why, before = next(filter(None, whys), ""), now
        if not why:
            return ""
    return why
