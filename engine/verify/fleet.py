"""The devices of a campaign: each piece of work gets a usable one, and another if that one fails.

A device is checked before work begins on it, even where other kopt processes work. A busy or lost
device is closed: it is not used until a later check finds it usable, and a notice says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from engine.verify import gate
from engine.verify.fleet_device import (
    DeviceAllocator,
    DeviceNotice,
    DeviceUse,
    FailsOnHealthyDevices,
    FleetDevice,
    NoDeviceAvailable,
)
from engine.verify.harness_client import HarnessFault
from harness.devices.device import Device
from harness.devices.monitoring import tenants
from harness.devices.monitoring.tenants import StrangerDetector
from harness.errors import Cancelled, KoptError
from harness.formats.quantities import countdown
from harness.isolation.zygote_client import WarmStart

T = TypeVar("T")
OnWait = Callable[[str], None]
TICK_S = 0.5
JUST_LEFT_S = 2.0
"""A driver's utilization still shows this process's work for this long after it has ended."""
MAX_LOSSES = 5
"""Attempts without a valid answer after which work is given up: it may be the cause."""


class Fleet:
    """Hands out devices to any thread; see `DeviceAllocator` for `retry_s` and `limit_s`.

    `look` checks a card and returns why it is busy; `news` receives notices for people.
    """

    def __init__(self, cards: Sequence[tuple[Device, WarmStart]], *, retry_s: float,
                 limit_s: float, news: Callable[[DeviceNotice], None] = lambda _: None,
                 look: Callable[..., str] = gate.look,
                 clock: Callable[[], float] = time.monotonic, tick_s: float = TICK_S,
                 fix: str = "free one, then `kopt resume`") -> None:
        self.cards = tuple(FleetDevice(device, warm) for device, warm in cards)
        self.allocator = DeviceAllocator(self.cards, retry_s=retry_s, limit_s=limit_s, clock=clock,
                                         fix=fix)
        self._fix = fix
        self._news, self._look, self._clock, self._tick_s = news, look, clock, tick_s
        self._strangers = {
            single.lock_name: StrangerDetector(single.lock_name, card.shelf.supervisor)
            for card in self.cards for single in card.device.cards}

    def close(self) -> None:
        """End the warm harness processes."""
        for card in self.cards:
            card.leave()
            card.warm.close()

    def run(self, use: DeviceUse, work: Callable[[FleetDevice], T], *,
            on_wait: OnWait = lambda _: None, cancel: threading.Event | None = None,
            needs_recheck: Callable[[T], bool] = lambda _: False,
            void_reason: Callable[[T], str] = lambda _: "") -> T:
        """Run `work` on a device, and again, perhaps on another, if that one was lost or taken.

        An answer that `needs_recheck` counts only if its device is still present and free of
        foreign processes; one with a `void_reason` never counts. Raises what `work` raises,
        Cancelled, and NoDeviceAvailable, also after MAX_LOSSES attempts; FailsOnHealthyDevices if
        each attempt failed on a device that was healthy afterwards, and not always on the same.
        """
        problem = void = ""
        healthy: list[str] = []
        for _ in range(MAX_LOSSES):
            with self.occupy(use, on_wait=on_wait, cancel=cancel) as card:
                try:
                    answer = work(card)
                except HarnessFault as fault:
                    problem = str(fault) if fault.of_device else card.find_fault()
                    if not problem:
                        raise
                    if not self._find_busy(card):  # no stranger and no fault explains the failure
                        healthy.append(card.device.id)
                else:
                    void = void_reason(answer)
                    problem = self._find_busy(card) if void or needs_recheck(answer) else ""
                    if not problem and not void:
                        return answer
                if problem:
                    self._close(card, problem)
                else:  # the stranger is gone again
                    self._notify(card, f"measured again: {void}")
        is_work_suspect = len(healthy) == MAX_LOSSES and len(set(healthy)) > 1
        raise (FailsOnHealthyDevices if is_work_suspect else NoDeviceAvailable)(
            f"lost the device {MAX_LOSSES} times; last cause: {problem or void}", fix=self._fix)

    @contextmanager
    def occupy(self, use: DeviceUse, *, on_wait: OnWait = lambda _: None,
               cancel: threading.Event | None = None) -> Iterator[FleetDevice]:
        """Wait for a fit device and yield it. Raises NoDeviceAvailable, Cancelled."""
        card = self._admitted(use, on_wait, cancel)
        try:
            yield card
        finally:
            self.allocator.leave(card, use)

    def _admitted(self, use: DeviceUse, on_wait: OnWait,
                  cancel: threading.Event | None) -> FleetDevice:
        """Try devices until a check admits one."""
        with self.allocator.place_in_queue(use) as place:
            while True:
                entered = self.allocator.enter(use, place)
                if entered is None:
                    if cancel is not None and cancel.is_set():
                        raise Cancelled("stopped while waiting for a device")
                    on_wait(self.allocator.describe_wait())
                    self.allocator.wait(self._tick_s)
                    continue
                card, closings = entered
                try:
                    problem = self._check_in(card)
                except BaseException:
                    self.allocator.leave(card, use, looked=True)
                    raise
                if problem:
                    self._close(card, problem)
                elif (closed_before := self.allocator.admit(card, closings)) is not None:
                    if closed_before:
                        self._notify(card, "idle again: back in the pool")
                    return card
                self.allocator.leave(card, use, looked=True)
                self.allocator.requeue(use, place)

    def _check_in(self, card: FleetDevice) -> str:
        """Check a device and register as its user; return why it cannot be used, else ""."""
        try:
            if card.looking and (problem := self._find_busy(card)):
                return problem
            card.register()
        except KoptError as error:  # such as a lock that is not available: try others
            return str(error)
        return ""

    def _find_busy(self, card: FleetDevice) -> str:
        """Return why a device is busy; where other kopts work, only strangers and faults count."""
        just_left = self._clock() - card.left_at < JUST_LEFT_S
        card.step_back()
        for single in card.device.cards if card.device.kind != "cpu" else ():
            name, look = single.lock_name, self._look
            detector = self._strangers[name] if tenants.is_in_use(name) else None
            if detector is None and (kept := card.shelf.processes()):
                look = partial(look, ours=kept)
            if problem := look(single, just_left=just_left, stranger_detector=detector):
                return problem
        return ""

    def _close(self, card: FleetDevice, reason: str) -> None:
        card.shelf.clear()
        if self.allocator.close(card, reason):
            self._notify(card, f"not used: {reason}; checked again in "
                         f"{countdown(card.pause_s)}")

    def _notify(self, card: FleetDevice, text: str) -> None:
        self._news(DeviceNotice(device=card.device.id, text=text))
