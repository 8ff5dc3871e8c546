"""The gate of the verbs that measure without a campaign: an idle card, waited for as one does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.devices.device import Device
from kopt_tui.snapshot import phrases

if TYPE_CHECKING:
    from engine.run.one_shot import OneShot
    from engine.verify.fleet_device import DeviceNotice, DeviceUse


class Gate:
    """Gives out the cards of a manifest. What is waited for is told on stderr: each card that is
    closed, and on a terminal, unless `quiet`, the countdown.
    """

    def __init__(self, direct: OneShot, *, quiet: bool,
                 cancel: threading.Event | None = None) -> None:
        self._direct, self._cancel = direct, cancel
        self._counts = not quiet and sys.stderr.isatty()
        self._fleet = direct.fleet(self._told)

    @contextmanager
    def card(self, use: DeviceUse) -> Iterator[Device]:
        """Yield an idle card. Raises NoDeviceAvailable, or Cancelled when cancelled meanwhile."""
        if self._direct.judged.device.kind == "cpu":
            yield self._direct.judged.device
            return
        try:
            with self._fleet.occupy(use, on_wait=self._tick, cancel=self._cancel) as card:
                yield card.device
        finally:
            self._tick("")

    def _told(self, news: DeviceNotice) -> None:
        self._print(f"kopt: {news.device} {phrases.clean(news.text)}\n")

    def _tick(self, text: str) -> None:
        if self._counts:
            self._print(phrases.clean(text))

    def _print(self, text: str) -> None:
        start = "\r\x1b[K" if self._counts else ""
        print(f"{start}{text}", end="", file=sys.stderr, flush=True)
