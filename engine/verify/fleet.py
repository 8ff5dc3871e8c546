"""The cards of a campaign: who works on which, and which are closed for a while.

A card is looked at before any work begins on it, also where kopts work already; one that is busy
or lost is closed and looked at again later, visibly, while the others go on. Work that a card takes
with it is done again on another.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from engine.verify import gate
from engine.verify.harness_client import HarnessFault
from harness.devices import inventory
from harness.devices.device import Device
from harness.devices.monitoring import tenants
from harness.devices.monitoring.tenants import StrangerDetector
from harness.errors import Cancelled, KoptError
from harness.isolation.zygote_client import WarmStart

T = TypeVar("T")
DeviceUse = Literal["verdict", "loop"]
Tell = Callable[[str], None]
TICK_S = 0.5
LEFT_S = 2.0
"""For so long a driver's utilization shows work of ours that has ended."""
LOSSES = 5
"""A piece of work that cards were closed under so many times is given up: it may be why."""


@dataclass(frozen=True, kw_only=True)
class DeviceNotice:
    """News of a card: it was closed, it is back, or what was done on it is done again."""

    device: str
    text: str


class NoDeviceAvailable(KoptError):
    """No card could be used for as long as a campaign waits for one."""


class FailsOnHealthyDevices(NoDeviceAvailable):
    """Several cards, each fit before and after, failed under one piece of work: it may be why."""


@dataclass(eq=False)
class FleetDevice:
    """A device of the campaign (several cards, where a target needs them), with what keeps its
    harness processes warm.
    """

    device: Device
    warm: WarmStart
    users: Counter[DeviceUse] = field(default_factory=Counter)
    looking: bool = False
    closed: str = ""
    """Why it may not be used, empty when it may."""
    again_at: float = 0.0
    shuts: int = 0
    """How often it was closed: a look that began before says nothing of it."""
    left_at: float = float("-inf")
    tenancy: ExitStack = field(default_factory=ExitStack)
    moved_in: bool = False


class Fleet:
    """Gives out cards; any thread may ask. Seconds are those of `clock`.

    A loop shares its card with others and with verdicts, by the card's lock; of verdicts each has
    a card of its own. `retry_s` is when a closed card is looked at again, `limit_s` how long all
    of them may be closed.
    """

    def __init__(self, cards: Sequence[tuple[Device, WarmStart]], *, retry_s: float,
                 limit_s: float, news: Callable[[DeviceNotice], None] = lambda _: None,
                 look: Callable[..., str] = gate.look,
                 clock: Callable[[], float] = time.monotonic, tick_s: float = TICK_S,
                 fix: str = "free one, then `kopt resume`") -> None:
        self.cards = tuple(FleetDevice(device, warm) for device, warm in cards)
        self._retry_s, self._limit_s = retry_s, limit_s
        self._news, self._look, self._clock, self._tick_s = news, look, clock, tick_s
        self._fix = fix
        self._near = {one.lock_name: StrangerDetector(one.lock_name)
                      for card in self.cards for one in card.device.cards}
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        """Who waits for a card for a verdict, in their order."""
        self._shut_at: float | None = None
        """Since when all cards are closed."""

    def close(self) -> None:
        for card in self.cards:
            card.warm.close()

    def run(self, use: DeviceUse, work: Callable[[FleetDevice], T], *,
            on_wait: Tell = lambda _: None, cancel: threading.Event | None = None,
            doubtful: Callable[[T], bool] = lambda _: False,
            spoilt: Callable[[T], str] = lambda _: "") -> T:
        """Do a piece of work on a card, and again on another if its card was lost or taken.

        An answer that is `doubtful` counts only if the card is there still, and no stranger is on
        it; one that is `spoilt`, for a reason, never counts. Raises what `work` raises, Cancelled,
        and NoDeviceAvailable, also for work that loses card after card, FailsOnHealthyDevices if
        several.
        """
        why = beside = ""
        fit: list[str] = []
        for _ in range(LOSSES):
            with self.occupy(use, on_wait=on_wait, cancel=cancel) as card:
                try:
                    answer = work(card)
                except HarnessFault as fault:
                    why = str(fault) if fault.of_device else trouble(card)
                    if not why:
                        raise
                    if not self._why_busy(card):  # else a stranger or the card itself is why
                        fit.append(card.device.id)
                else:
                    beside = spoilt(answer)
                    why = self._why_busy(card) if beside or doubtful(answer) else ""
                    if not why and not beside:
                        return answer
                if why:
                    self._shut(card, why)
                else:  # the stranger is gone again
                    self._news(DeviceNotice(device=card.device.id,
                                            text=f"measured again: {beside}"))
        raise (FailsOnHealthyDevices if len(fit) == LOSSES and len(set(fit)) > 1 else
               NoDeviceAvailable)(
            f"{LOSSES} times the card was lost or taken meanwhile, last because of: "
            f"{why or beside}", fix=self._fix)

    @contextmanager
    def occupy(self, use: DeviceUse, *, on_wait: Tell = lambda _: None,
               cancel: threading.Event | None = None) -> Iterator[FleetDevice]:
        """Have a card for a piece of work; waits for one that is idle."""
        card = self._admitted(use, on_wait, cancel)
        try:
            yield card
        finally:
            self._leave(card, use)

    def _admitted(self, use: DeviceUse, on_wait: Tell,
                  cancel: threading.Event | None) -> FleetDevice:
        with self._turn(use) as turn:
            while True:
                picked = self._pick(use, turn)
                if picked is None:
                    self._wait(on_wait, cancel)
                    continue
                card, shuts = picked
                try:
                    why = self._why_not(card) or self._move_in(card)
                except KoptError as error:  # its lock cannot be had, say: the others may do
                    why = str(error)
                except BaseException:
                    self._leave(card, use, looked=True)
                    raise
                if not why and self._admit(card, shuts):
                    return card
                if why:
                    self._shut(card, why)
                self._leave(card, use, looked=True)
                if use == "verdict":
                    self._waiting.appendleft(turn)

    @contextmanager
    def _turn(self, use: DeviceUse) -> Iterator[object]:
        """Stand in line for a verdict's card; a loop shares one, and waits for nobody."""
        turn = object()
        if use == "verdict":
            self._waiting.append(turn)
        try:
            yield turn
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(turn)

    def _pick(self, use: DeviceUse, turn: object) -> tuple[FleetDevice, int] | None:
        """Enter the card with the least to do, None if there is none to be had now; returns how
        often it was closed as well.
        """
        with self._changed:
            free = [card for card in self.cards if not card.looking
                    and not (card.closed and self._clock() < card.again_at)
                    and not (use == "verdict" and card.users["verdict"])]
            before = self._waiting.index(turn) if turn in self._waiting else 0
            if len(free) <= before:
                return None
            with contextlib.suppress(ValueError):
                self._waiting.remove(turn)
            card = min(free, key=lambda one: (one.users[use], one.users.total()))
            card.users[use] += 1
            card.looking = (card.users.total() == 1 or bool(card.closed)
                            or card.device.kind != "cpu")
            return card, card.shuts

    def _why_not(self, card: FleetDevice) -> str:
        return self._why_busy(card) if card.looking else ""

    def _why_busy(self, card: FleetDevice) -> str:
        """Look at a card; where kopts work on it, they and their locks share it."""
        just_left = self._clock() - card.left_at < LEFT_S
        for one in card.device.cards if card.device.kind != "cpu" else ():
            near = self._near[one.lock_name] if tenants.is_in_use(one.lock_name) else None
            if why := self._look(one, just_left=just_left, near=near):
                return why
        return ""

    def _move_in(self, card: FleetDevice) -> str:
        """Be known as a kopt on the card; say why that cannot be, empty when it is."""
        if card.looking and not card.moved_in:
            for name in card.device.lock_names:
                card.tenancy.enter_context(tenants.registered(name))
            card.moved_in = True
        return ""

    def _admit(self, card: FleetDevice, shuts: int) -> bool:
        """Let a thread that has looked at a card, or found it in use, work on it, unless the card
        was closed meanwhile.
        """
        back = ""
        with self._changed:
            if card.shuts != shuts:
                return False
            self._shut_at = None
            if card.looking:
                back, card.closed, card.looking = card.closed, "", False
            self._changed.notify_all()
        if back:
            self._news(DeviceNotice(device=card.device.id, text="idle again: back in the pool"))
        return True

    def _leave(self, card: FleetDevice, use: DeviceUse, *, looked: bool = False) -> None:
        with self._changed:
            card.users[use] -= 1
            card.looking = card.looking and not looked
            if not card.users.total():
                card.left_at = self._clock()
                card.tenancy.close()
                card.moved_in = False
            self._changed.notify_all()

    def _shut(self, card: FleetDevice, why: str) -> None:
        """Close a card for a while."""
        with self._changed:
            before, card.closed = card.closed, why
            card.shuts += 1
            card.again_at = self._clock() + self._retry_s
            if self._shut_at is None and all(one.closed for one in self.cards):
                self._shut_at = self._clock()
        if why != before:
            self._news(DeviceNotice(device=card.device.id, text=(
                f"not used: {why}; looked at again in {_minutes(self._retry_s)}")))

    def _wait(self, on_wait: Tell, cancel: threading.Event | None) -> None:
        """Wait a moment for a card, telling what for. Raises NoDeviceAvailable, Cancelled."""
        if cancel is not None and cancel.is_set():
            raise Cancelled("stopped while waiting for a device")
        with self._changed:
            now = self._clock()
            if self._shut_at is None:
                text = "waits for a device"
            else:
                reasons = "; ".join(f"{card.device.id}: {card.closed}" for card in self.cards)
                left = self._shut_at + self._limit_s - now
                if left <= 0:
                    raise NoDeviceAvailable(f"no idle GPU for {_minutes(self._limit_s)}: {reasons}",
                                    fix=self._fix)
                soon = max(0.0, min(card.again_at for card in self.cards) - now)
                text = f"no idle GPU, looks again in {_minutes(soon)}, gives up in " \
                       f"{_minutes(left)}: {reasons}"
        on_wait(text)
        with self._changed:
            self._changed.wait(self._tick_s)


def trouble(card: FleetDevice) -> str:
    """Say why a card cannot be trusted any more, empty when its driver knows of nothing."""
    return "" if card.device.kind == "cpu" else next(filter(None, (
        one.problem for one in inventory.states(card.device.cards))), "")


def _minutes(seconds: float) -> str:
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02} min"
