"""Who works on which device: queue, users, closed devices. Every method is safe in any thread."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from engine.verify.fleet_device import DeviceUse, FleetDevice, NoDeviceAvailable
from harness.formats.quantities import countdown


class DeviceAllocator:
    """The users of a fleet's devices. Seconds are those of `clock`.

    A verdict never shares a device with another verdict; verdicts queue. A loop shares its device
    with loops and verdicts, by the device's lock, and never queues. A closed device may be checked
    again after `retry_s`; `limit_s` is how long all of them may be closed.
    """

    def __init__(self, cards: Sequence[FleetDevice], *, retry_s: float, limit_s: float,
                 clock: Callable[[], float], fix: str) -> None:
        self._cards, self._clock, self._fix = cards, clock, fix
        self._retry_s, self._limit_s = retry_s, limit_s
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._all_closed_at: float | None = None

    @property
    def queue_length(self) -> int:
        """How many verdicts wait for a device."""
        return len(self._queue)

    @contextmanager
    def place_in_queue(self, use: DeviceUse) -> Iterator[object]:
        """Queue for a device until the block ends; only verdicts queue."""
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

        The caller checks a device that is `looking`, and then calls `admit` or `leave`.
        """
        with self._changed:
            free = [card for card in self._cards if not card.looking
                    and not (card.closed and self._clock() < card.again_at)
                    and not (use == "verdict" and card.users["verdict"])]
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
        """Leave a device, after a failed check if `looked`."""
        with self._changed:
            card.users[use] -= 1
            card.looking = card.looking and not looked
            if not card.users.total():
                card.left_at = self._clock()
                card.unregister()
            self._changed.notify_all()

    def close(self, card: FleetDevice, reason: str) -> bool:
        """Close a device for `retry_s`; return whether the reason is news."""
        with self._changed:
            before, card.closed = card.closed, reason
            card.closings += 1
            card.again_at = self._clock() + self._retry_s
            if self._all_closed_at is None and all(other.closed for other in self._cards):
                self._all_closed_at = self._clock()
            return reason != before

    def describe_wait(self) -> str:
        """Return what a waiting caller waits for. Raises NoDeviceAvailable past `limit_s`."""
        with self._changed:
            if self._all_closed_at is None:
                return "waiting for a device"
            now = self._clock()
            reasons = "; ".join(f"{card.device.id}: {card.closed}" for card in self._cards)
            left_s = self._all_closed_at + self._limit_s - now
            if left_s <= 0:
                raise NoDeviceAvailable(
                    f"no idle GPU for {countdown(self._limit_s)}: {reasons}", fix=self._fix)
            next_s = max(0.0, min(card.again_at for card in self._cards) - now)
            return f"no idle GPU, looks again in {countdown(next_s)}, gives up in " \
                   f"{countdown(left_s)}: {reasons}"

    def wait(self, seconds: float) -> None:
        """Wait until something changes, for at most `seconds`."""
        with self._changed:
            self._changed.wait(seconds)
