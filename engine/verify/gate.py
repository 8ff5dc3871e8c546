"""The gate: whether a card may be used now, by what its driver reports. Nothing is preempted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Set
from dataclasses import replace

from harness.devices import inventory
from harness.devices.device import Device, DeviceProcess, DeviceState
from harness.devices.monitoring import interference
from harness.devices.monitoring.tenants import StrangerDetector
from harness.verdict import Verdict

NEAR_ZERO_PCT = 5.0
LOW_MEMORY = 0.1
"""The share of a card's memory that driver and display may hold."""
STABLE_BYTES = 64 << 20
"""If a card's used memory changes by at most this between two looks, nothing computes there."""
LOOKS = 3
SETTLE_S = 1.0
"""Seconds between two looks, since a process that has just ended is still listed for a moment."""


def why_busy(now: DeviceState, before: DeviceState | None = None, *,
             just_left: bool = False) -> str:
    """Return why a card is not idle, empty when it is.

    Idle means: not faulty or slowed down, no compute process, utilization near zero, memory low or
    unchanged since the earlier look `before`. Utilization does not count on a card that we have
    `just_left`: it may still be ours. Where the driver does not list processes, utilization must be
    known and memory low.
    """
    if now.problem:
        return now.problem
    if now.slowed:
        return f"slowed down: {', '.join(now.slowed)}"
    if now.processes:
        return _describe_processes(now.processes)
    if now.processes is None and now.utilization_pct is None:
        return "cannot tell whether it is idle: its processes and utilization are unknown"
    if (now.utilization_pct or 0.0) > NEAR_ZERO_PCT and not just_left:
        return f"{now.utilization_pct:.0f} % in use"
    return _memory(now, before)


def why_taken(now: DeviceState, stranger_detector: StrangerDetector) -> str:
    """Return the fault of a card that other kopts use, or the stranger on it; empty if none."""
    if now.problem:
        return now.problem
    processes = now.processes or ()
    strangers = stranger_detector.strangers(process.pid for process in processes)
    return _describe_processes([process for process in processes if process.pid in strangers])


def needs_recheck(verdict: Verdict) -> bool:
    """Return whether a verdict counts only if its card is fit and free of strangers afterwards."""
    return not (verdict.valid and verdict.correct) or bool(resident_processes(verdict))


def void_reason(verdict: Verdict) -> str:
    """Return what voids a verdict: a stranger that ran during all of its timing; "" if none did."""
    return _detail_of(verdict, interference.STRANGER)


def resident_processes(verdict: Verdict) -> str:
    """Return which processes were on a verdict's card from the start, empty if none."""
    return _detail_of(verdict, interference.COMPANY)


def _detail_of(verdict: Verdict, kind: str) -> str:
    return next((fact.detail for fact in verdict.evidence if fact.kind == kind), "")


def _describe_processes(processes: Sequence[DeviceProcess]) -> str:
    """Return the first of some processes in words, and how many more there are; "" for none."""
    if not processes:
        return ""
    first = processes[0]
    more = f" and {len(processes) - 1} more" if len(processes) > 1 else ""
    return f"in use by process {first.pid}{f' ({first.name})' if first.name else ''}{more}"


def _memory(now: DeviceState, before: DeviceState | None) -> str:
    used = now.memory_used or 0
    if now.memory_total is None or used <= LOW_MEMORY * now.memory_total:
        return ""
    in_use = f"{used / (1 << 30):.1f} GiB of its memory in use"
    if before is None or before.memory_used is None or now.processes is None:
        return in_use
    return f"{in_use}, and changing" if abs(used - before.memory_used) > STABLE_BYTES else ""


def _without(pids: Set[int], now: DeviceState) -> DeviceState:
    return now if now.processes is None else replace(now, processes=tuple(
        process for process in now.processes if process.pid not in pids))


def look(device: Device, *, just_left: bool = False,
         stranger_detector: StrangerDetector | None = None, ours: Set[int] = frozenset(),
         pause: Callable[[float], object] = time.sleep,
         state: Callable[[Device], DeviceState] = inventory.state) -> str:
    """Look at a device until it is idle, at most LOOKS times; return why it is busy, else "".

    On a device that other kopt processes use, `stranger_detector` finds processes that no kopt
    started, and only those and faults count. Otherwise all count but processes of `ours`. The CPU
    is never busy: its timing deals with other load.
    """
    if device.kind == "cpu":
        return ""
    before: dict[str, DeviceState] = {}
    reason = ""
    for number in range(LOOKS):
        if number:
            pause(SETTLE_S)
        now = {card.id: _without(ours, state(card)) for card in device.cards}
        reasons = [why_taken(card_state, stranger_detector) if stranger_detector is not None
                   else why_busy(card_state, before.get(name), just_left=just_left)
                   for name, card_state in now.items()]
        reason, before = next(filter(None, reasons), ""), now
        if not reason:
            return ""
    return reason
