"""Waits for an idle card, for verbs that measure without a campaign."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.devices.device import Device
from kopt_tui.snapshot import phrases

if TYPE_CHECKING:  # for start-up time
    from engine.run.one_shot import OneShot
    from engine.verify.fleet_device import DeviceNotice, DeviceUse


class Gate:
    """Hands out the cards of a manifest, one at a time, when they are idle.

    Prints to stderr why a card is not used and, at a terminal and unless `quiet`, a countdown.
    """

    def __init__(self, one_shot: OneShot, *, quiet: bool,
                 cancel: threading.Event | None = None) -> None:
        self._device, self._cancel = one_shot.judged.device, cancel
        self._has_countdown = not quiet and sys.stderr.isatty()
        self._fleet = one_shot.fleet(self._report)

    @contextmanager
    def card(self, use: DeviceUse) -> Iterator[Device]:
        """Yield an idle card. Raises NoDeviceAvailable, or Cancelled when `cancel` is set."""
        if self._device.kind == "cpu":
            yield self._device
            return
        try:
            with self._fleet.occupy(use, on_wait=self._count_down, cancel=self._cancel) as card:
                yield card.device
        finally:
            self._count_down("")

    def _report(self, notice: DeviceNotice) -> None:
        self._print(f"kopt: {notice.device} {phrases.clean(notice.text)}\n")

    def _count_down(self, text: str) -> None:
        if self._has_countdown:
            self._print(phrases.clean(text))

    def _print(self, text: str) -> None:
        start = "\r\x1b[K" if self._has_countdown else ""
        print(f"{start}{text}", end="", file=sys.stderr, flush=True)
