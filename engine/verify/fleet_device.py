"""A campaign's devices, who uses them, notices about them, and the errors that end a wait."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Literal

from harness.devices import inventory
from harness.devices.device import Device
from harness.devices.monitoring import tenants
from harness.errors import KoptError
from harness.formats.quantities import countdown, listed
from harness.isolation.zygote_client import WarmStart
from harness.runners.kept_oracle import KEPT_S, OracleShelf

DeviceUse = Literal["verdict", "loop", "screening"]
FIRST_PAUSE_S = 15.0


class NoDeviceAvailable(KoptError):
    """No device was usable for as long as a campaign waits for one."""


class FailsOnHealthyDevices(NoDeviceAvailable):
    """Several devices, fit before and after, failed at the same work, which is the likely cause."""


@dataclass(frozen=True, kw_only=True)
class DeviceNotice:
    """A notice for people: a device was closed, is open again, or its work is repeated."""

    device: str
    text: str


@dataclass(eq=False)
class FleetDevice:
    """A device of the campaign (several cards, where a target needs them) and its users."""

    device: Device
    warm: WarmStart
    """Keeps the imports of its harness processes warm."""
    shelf: OracleShelf = field(default_factory=OracleShelf)
    """Where a verdict's oracle process waits for the next verdict."""
    users: Counter[DeviceUse] = field(default_factory=Counter)
    looking: bool = False
    """A thread is checking the device; no other may use it."""
    closed: str = ""
    """Why the device may not be used, empty if it may."""
    again_at: float = 0.0
    pause_s: float = 0.0
    """Seconds from the last closing to the next check."""
    closings: int = 0
    """How often it was closed: a check that began before the last closing is ignored."""
    left_at: float = float("-inf")
    tenancy: ExitStack = field(default_factory=ExitStack)
    is_registered: bool = False
    registering: threading.Lock = field(default_factory=threading.Lock)
    next_look: threading.Timer | None = None

    def register(self) -> None:
        """Register as a user of the device, for other kopt processes on this machine."""
        with self.registering:
            if self.looking and not self.is_registered:
                for name in self.device.lock_names:
                    self.tenancy.enter_context(tenants.registered(name))
                self.is_registered = True

    def unregister(self) -> None:
        """Unregister if the device has no users; try again in KEPT_S if an oracle waits on it."""
        with self.registering:
            if self.users.total():
                return
            if not self.shelf.holds_one:
                self.tenancy.close()
                self.is_registered = False
            elif self.next_look is None or not self.next_look.is_alive():
                self.next_look = threading.Timer(KEPT_S, self.unregister)
                self.next_look.daemon = True
                self.next_look.start()

    def step_back(self) -> None:
        """Unregister during a check if only the checking thread uses the device.

        `tenants.is_in_use` then tells whether other processes do.
        """
        with self.registering:
            if self.users.total() == int(self.looking):
                self.tenancy.close()
                self.is_registered = False

    def leave(self) -> None:
        """End the oracle that waits on the device, and unregister."""
        self.shelf.close()
        if self.next_look is not None:
            self.next_look.cancel()
        self.unregister()

    def find_fault(self) -> str:
        """Return the fault that a card's driver reports, empty when there is none."""
        if self.device.kind == "cpu":
            return ""
        states = inventory.states(self.device.cards)
        return next((state.problem for state in states if state.problem), "")


class DeviceAllocator:
    """Assigns a fleet's devices to users. Seconds are those of `clock`.

    A verdict never shares a device with another verdict; verdicts queue. A loop shares its device
    with loops and verdicts, by the device's lock, and never queues. A screening begins only while
    no verdict waits for a device, on one where neither a verdict nor another screening runs. A
    closed device may be checked again after FIRST_PAUSE_S, since a process that is ending makes it
    busy for a moment, then after twice as long, and so on up to `retry_s`; `limit_s` is how long
    all devices may be closed.
    """

    def __init__(self, cards: Sequence[FleetDevice], *, retry_s: float, limit_s: float,
                 clock: Callable[[], float], fix: str) -> None:
        self._cards, self._clock, self._fix = cards, clock, fix
        self._retry_s, self._limit_s = retry_s, limit_s
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._all_closed_at: float | None = None

    @contextmanager
    def place_in_queue(self, use: DeviceUse) -> Iterator[object]:
        """Queue for a device inside the `with` block; only verdicts queue."""
        place = object()
        if use == "verdict":
            self._queue.append(place)
        try:
            yield place
        finally:
            with contextlib.suppress(ValueError):
                self._queue.remove(place)

    def enter(self, use: DeviceUse, place: object) -> tuple[FleetDevice, int] | None:
        """Enter the least busy device; return it and how often it was closed, None if none is free.

        If the device is `looking`, the caller checks it. Then it calls `admit` or `leave`.
        """
        with self._changed:
            free = [card for card in self._cards if not card.looking
                    and not (card.closed and self._clock() < card.again_at)
                    and not (use != "loop" and card.users["verdict"])
                    and not (use == "screening" and (self._queue or card.users["screening"]))]
            ahead = self._queue.index(place) if place in self._queue else 0
            if len(free) <= ahead:
                return None
            with contextlib.suppress(ValueError):
                self._queue.remove(place)
            card = min(free, key=lambda free_card: (free_card.users[use],
                                                    free_card.users.total()))
            card.users[use] += 1
            card.looking = (card.users.total() == 1 or bool(card.closed)
                            or card.device.kind != "cpu")
            return card, card.closings

    def requeue(self, use: DeviceUse, place: object) -> None:
        """Return to the head of the queue after entering a device that turned out to be unfit."""
        if use == "verdict":
            self._queue.appendleft(place)

    def admit(self, card: FleetDevice, closings: int) -> str | None:
        """Open a device that was checked; return why it was closed before, empty if it was not.

        None if it has been closed since the caller entered it: it must not be used.
        """
        with self._changed:
            if card.closings != closings:
                return None
            self._all_closed_at = None
            reason = ""
            if card.looking:
                reason, card.closed, card.looking = card.closed, "", False
            self._changed.notify_all()
            return reason

    def leave(self, card: FleetDevice, use: DeviceUse, *, looked: bool = False) -> None:
        """Leave a device; `looked` says that the caller's check of it failed and is over."""
        with self._changed:
            card.users[use] -= 1
            card.looking = card.looking and not looked
            if not card.users.total():
                card.left_at = self._clock()
                card.unregister()
            self._changed.notify_all()

    def close(self, card: FleetDevice, reason: str) -> bool:
        """Close a device for a while; return whether it was open, or closed for another reason."""
        with self._changed:
            now, before = self._clock(), card.closed
            card.closed = reason
            card.closings += 1
            was_closed_lately = card.pause_s > 0 and now < card.again_at + self._retry_s
            card.pause_s = min(self._retry_s,
                               2 * card.pause_s if was_closed_lately else FIRST_PAUSE_S)
            card.again_at = now + card.pause_s
            if self._all_closed_at is None and all(other.closed for other in self._cards):
                self._all_closed_at = self._clock()
            return reason != before

    def describe_wait(self) -> str:
        """Return what a waiting caller waits for. Raises NoDeviceAvailable past `limit_s`."""
        with self._changed:
            if self._all_closed_at is None:
                names = listed([card.device.id for card in self._cards], 3)
                return f"waiting for {names}: another verdict of this campaign is timed there"
            now = self._clock()
            reasons = "; ".join(f"{card.device.id}: {card.closed}" for card in self._cards)
            left_s = self._all_closed_at + self._limit_s - now
            if left_s <= 0:
                raise NoDeviceAvailable(
                    f"no idle GPU for {countdown(self._limit_s)}: {reasons}", fix=self._fix)
            next_s = max(0.0, min(card.again_at for card in self._cards) - now)
            return f"no idle GPU; next check in {countdown(next_s)}, gives up in " \
                   f"{countdown(left_s)}: {reasons}"

    def wait(self, seconds: float) -> None:
        """Wait until something changes, for at most `seconds`."""
        with self._changed:
            self._changed.wait(seconds)
