"""The thread that queries the state of the devices while a screen shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness.errors import KoptError
from harness.formats.quantities import GIB, listed
from harness.formats.text import plain
from kopt_tui.snapshot.feed import ReaderThread
from kopt_tui.snapshot.snapshot import DeviceLine, DeviceSnapshot

if TYPE_CHECKING:  # for start-up time
    from harness.devices.device import Device, DeviceState

SAMPLE_S = 2.0


class Sampler(ReaderThread):
    """Posts the devices when their displayed text has changed.

    `harness.devices.inventory` limits the time of every query; a card that stops answering keeps
    its last values. Nothing is queried while no screen shows devices.
    """

    def __init__(self, post: Callable[[DeviceSnapshot], None]) -> None:
        super().__init__("device-sampler")
        self._post = post

    def run(self) -> None:
        self._watched.wait()
        if self._ended.is_set():
            return
        from harness.devices import inventory  # loads drivers, so only when a screen needs it

        last: DeviceSnapshot | None = None
        devices, problems = inventory.survey()
        while not self._ended.is_set():
            try:
                lines = tuple(map(device_line, devices, inventory.states(devices)))
                fresh = DeviceSnapshot(lines, "; ".join(plain(text, 200) for text in problems))
            except KoptError as error:
                fresh = DeviceSnapshot(last.devices if last else (), plain(str(error), 200))
            if fresh != last:
                last = fresh
                self._post(fresh)
            self._ended.wait(SAMPLE_S)
            self._watched.wait()


def device_line(device: Device, state: DeviceState) -> DeviceLine:
    """Return a device in words; numbers are rounded, so that noise causes no repaint."""
    facts = [
        ("use", rounded(state.utilization_pct, 5, "%")),
        ("memory", _memory(state)),
        ("temperature", rounded(state.temperature_c, 1, " °C")),
        ("power", _of(state.power_w, state.power_limit_w, 5, " W")),
        ("clock", rounded(state.clock_mhz, 50, " MHz")),
        ("slowed by", ", ".join(state.slowed)),
        ("mode", "" if state.compute_mode == "default" else state.compute_mode),
    ]
    return DeviceLine(
        id=device.id, name=plain(device.name, 80),
        facts=tuple((name, value) for name, value in facts if value), owner=_owner(device, state),
        trouble=plain(state.problem or device.unusable or device.note, 200),
        silent_since=state.silent_since,
    )


def _owner(device: Device, state: DeviceState) -> str:
    """Return who uses a device: the holder of kopt's lock, else the processes on the device."""
    from harness.isolation.device_lock import holder  # start-up time

    try:
        pid = holder(device.lock_name)
    except (KoptError, OSError):
        pid = None
    if pid is not None:
        return f"measuring, process {pid}"
    others: Sequence[str] = [f"{plain(p.name, 24) or 'process'} {p.pid}"
                             for p in state.processes or ()]
    return listed(others, 3)


def rounded(value: float | None, step: int, unit: str) -> str:
    """Return a value rounded to a multiple of `step`, "" for an unknown one."""
    return "" if value is None else f"{round(value / step) * step:.0f}{unit}"


def _of(value: float | None, most: float | None, step: int, unit: str) -> str:
    if value is None:
        return ""
    return rounded(value, step, "") + (f" of {most:.0f}" if most else "") + unit


def _memory(state: DeviceState) -> str:
    if state.memory_used is None:
        return ""
    total = f" of {state.memory_total / GIB:.0f}" if state.memory_total else ""
    return f"{state.memory_used / GIB:.1f}{total} GiB"
