"""A device as the fleet sees it, the fleet's notices about it, and the errors that end a wait."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal

from harness.devices import inventory
from harness.devices.device import Device
from harness.devices.monitoring import tenants
from harness.errors import KoptError
from harness.isolation.zygote_client import WarmStart

DeviceUse = Literal["verdict", "loop"]


class NoDeviceAvailable(KoptError):
    """No device was usable for as long as a campaign waits for one."""


class FailsOnHealthyDevices(NoDeviceAvailable):
    """Several devices, each fit before and after, failed under the same work: it may be the cause.
    """


@dataclass(frozen=True, kw_only=True)
class DeviceNotice:
    """A notice for people: a device was closed, is back, or its work is done again."""

    device: str
    text: str


@dataclass(eq=False)
class FleetDevice:
    """A device of the campaign (several cards, where a target needs them) and its users."""

    device: Device
    warm: WarmStart
    """Keeps the imports of its harness processes warm."""
    users: Counter[DeviceUse] = field(default_factory=Counter)
    looking: bool = False
    """A thread is checking the device; no other may use it."""
    closed: str = ""
    """Why it may not be used, empty when it may."""
    again_at: float = 0.0
    closings: int = 0
    """How often it was closed: a check that began before the last closing does not count."""
    left_at: float = float("-inf")
    tenancy: ExitStack = field(default_factory=ExitStack)
    is_registered: bool = False

    def register(self) -> None:
        """Register as a user of the device, for other kopt processes on this machine."""
        if self.looking and not self.is_registered:
            for name in self.device.lock_names:
                self.tenancy.enter_context(tenants.registered(name))
            self.is_registered = True

    def unregister(self) -> None:
        self.tenancy.close()
        self.is_registered = False

    def find_fault(self) -> str:
        """Return the fault that a card's driver reports, empty when there is none."""
        if self.device.kind == "cpu":
            return ""
        states = inventory.states(self.device.cards)
        return next((state.problem for state in states if state.problem), "")
