"""The thread that asks the machine's devices how they are, while a screen shows them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness.errors import KoptError
from harness.formats.text import plain
from kopt_tui.snapshot.snapshot import DeviceLine, DeviceSnapshot

if TYPE_CHECKING:
    from harness.devices.device import Device, DeviceState

SAMPLE_S = 2.0
GIB = 1 << 30


class Sampler(threading.Thread):
    """Posts the devices' states when what a person would read of them has changed.

    Every question is bounded in time by `harness.devices.inventory`; a card that went silent keeps
    its last good values. Nothing is asked while nobody looks.
    """

    def __init__(self, post: Callable[[DeviceSnapshot], None], *,
                 period_s: float = SAMPLE_S) -> None:
        super().__init__(name="device-sampler", daemon=True)
        self._post = post
        self._period_s = period_s
        self._watched = threading.Event()
        self._ended = threading.Event()

    def watch(self, watched: bool) -> None:
        """Say whether a screen shows devices now."""
        if watched:
            self._watched.set()
        else:
            self._watched.clear()

    def stop(self) -> None:
        """End the thread after the question it is asking."""
        self._ended.set()
        self._watched.set()

    def run(self) -> None:
        self._watched.wait()
        if self._ended.is_set():
            return
        from harness.devices import (
            inventory,  # drivers are looked for only when someone wants to know
        )

        last: DeviceSnapshot | None = None
        listed, problems = inventory.survey()
        while not self._ended.is_set():
            try:
                found = tuple(map(device_line, listed, inventory.states(listed)))
                fresh = DeviceSnapshot(found, "; ".join(plain(one, 200) for one in problems))
            except KoptError as error:
                fresh = DeviceSnapshot(last.devices if last else (), plain(str(error), 200))
            if fresh != last:
                last = fresh
                self._post(fresh)
            self._ended.wait(self._period_s)
            self._watched.wait()


def device_line(device: Device, state: DeviceState) -> DeviceLine:
    """Return what a person reads of a device, in steps coarse enough to be quiet."""
    facts = [
        ("use", _step(state.utilization_pct, 5, "%")),
        ("memory", _memory(state)),
        ("temperature", _step(state.temperature_c, 1, " °C")),
        ("power", _of(state.power_w, state.power_limit_w, 5, " W")),
        ("clock", _step(state.clock_mhz, 50, " MHz")),
        ("slowed by", ", ".join(state.slowed)),
        ("mode", "" if state.compute_mode == "default" else state.compute_mode),
    ]
    return DeviceLine(
        id=device.id, name=plain(device.name, 80), kind=device.kind,
        facts=tuple((name, value) for name, value in facts if value), owner=_owner(device, state),
        trouble=plain(state.problem or device.unusable or device.note, 200),
        silent_since=state.silent_since,
    )


def _owner(device: Device, state: DeviceState) -> str:
    """Return who computes on a device: kopt's lock first, then what the driver lists."""
    from harness.isolation.device_lock import holder

    try:
        pid = holder(device.lock_name)
    except (KoptError, OSError):
        pid = None
    if pid is not None:
        return f"measuring, process {pid}"
    others: Sequence[str] = [f"{plain(p.name, 24) or 'process'} {p.pid}"
                             for p in state.processes or ()]
    return ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")


def _step(value: float | None, step: int, unit: str) -> str:
    return "" if value is None else f"{round(value / step) * step:.0f}{unit}"


def _of(value: float | None, most: float | None, step: int, unit: str) -> str:
    if value is None:
        return ""
    return _step(value, step, "") + (f" of {most:.0f}" if most else "") + unit


def _memory(state: DeviceState) -> str:
    if state.memory_used is None:
        return ""
    whole = f" of {state.memory_total / GIB:.0f}" if state.memory_total else ""
    return f"{state.memory_used / GIB:.1f}{whole} GiB"
