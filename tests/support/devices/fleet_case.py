"""Recorded states of a card, and a fleet whose clock advances only while it waits."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from engine.verify.fleet import Fleet
from engine.verify.fleet_device import DeviceNotice
from harness.devices.device import Device, DeviceState
from harness.devices.monitoring.tenants import StrangerDetector
from harness.isolation.zygote_client import WarmStart

GIB = 1 << 30


IDLE = DeviceState(device="cuda:0", at=0.0, utilization_pct=0.0, memory_used=GIB // 2,
                   memory_total=141 * GIB, processes=())


names = itertools.count()


def card(index: int = 0) -> Device:
    """Return a card with a lock of its own."""
    return Device(id=f"cuda:{index}", kind="nvidia", name="NVIDIA H200", index=index,
                  uuid=f"GPU-test-{next(names)}", memory_bytes=141 * GIB, arch="sm_90")


class TimedFleet:
    """A fleet whose clock advances only while it waits.

    `busy` returns why a card is busy at a time, "" if it is idle.
    """

    def __init__(self, count: int, busy: Callable[[str, float], str], step_s: float = 10.0,
                 **limits: float) -> None:
        self.now, self.step_s, self.waits = 0.0, step_s, list[str]()
        self.news: list[DeviceNotice] = []
        self.looks: list[tuple[str, float]] = []
        self.in_use: list[bool] = []
        """Per check: whether other kopt processes already use the card."""
        self.fleet = Fleet([(card(i), WarmStart(None)) for i in range(count)],
                           **{"retry_s": 600.0, "limit_s": 3600.0, **limits},
                           news=self.news.append, look=self._look, clock=lambda: self.now,
                           tick_s=0.0)
        self._busy = busy

    def _look(self, device: Device, *, just_left: bool,
              stranger_detector: StrangerDetector | None) -> str:
        self.looks.append((device.id, self.now))
        self.in_use.append(stranger_detector is not None)
        return self._busy(device.id, self.now)

    def wait(self, text: str) -> None:
        self.waits.append(text)
        self.now += self.step_s
