"""The gate: whether a card may be used now, as its driver tells it. Nothing is preempted."""

from __future__ import annotations

import time
from collections.abc import Callable

from harness import devices
from harness.device import Device, DeviceState

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
    `before`, stable. What we have `just_left` still shows a utilization that was ours.
    """
    if now.problem:
        return now.problem
    if now.slowed:
        return f"slowed down: {', '.join(now.slowed)}"
    if now.processes:
        one = now.processes[0]
        more = f" and {len(now.processes) - 1} more" if len(now.processes) > 1 else ""
        return f"process {one.pid}{f' ({one.name})' if one.name else ''}{more} computes there"
    if (now.utilization_pct or 0.0) > NEAR_ZERO_PCT and not just_left:
        return f"{now.utilization_pct:.0f} % in use"
    return _memory(now, before)


def _memory(now: DeviceState, before: DeviceState | None) -> str:
    used = now.memory_used or 0
    if now.memory_total is None or used <= LOW_MEMORY * now.memory_total:
        return ""
    told = f"{used / (1 << 30):.1f} GiB of its memory in use"
    if before is None or before.memory_used is None:
        return told
    return f"{told}, and it changes" if abs(used - before.memory_used) > STABLE_BYTES else ""


def look(device: Device, *, just_left: bool = False, pause: Callable[[float], object] = time.sleep,
         state: Callable[[Device], DeviceState] = devices.state) -> str:
    """Look at a device, some seconds long if need be; say why it is busy, empty when it is idle.

    The CPU is never busy: its timing deals with other load.
    """
    if device.kind == "cpu":
        return ""
    before: dict[str, DeviceState] = {}
    why = ""
    for number in range(LOOKS):
        if number:
            pause(SETTLE_S)
        now = {card.id: state(card) for card in device.cards}
        whys = [why_busy(one, before.get(name), just_left=just_left) for name, one in now.items()]
        why, before = next(filter(None, whys), ""), now
        if not why:
            return ""
    return why
