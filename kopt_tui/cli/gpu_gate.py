"""Measures without a campaign: waits for an idle card, and notes who else used it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from engine.run.one_shot import OneShot
from engine.verify import gate, harness_client
from engine.verify.fleet_device import DeviceNotice, DeviceUse
from harness.devices.device import Device
from harness.requests import EvaluateRequest, Progress, ReportedRequest
from harness.roofline.predictor import card_for
from harness.verdict import Verdict
from kopt_tui.cli.output import print_note
from kopt_tui.snapshot import phrases

SLOW_S = 3
"""From so many seconds on, the line of a stage tells how long it has taken."""


def open_target(manifest: Path, *, base: str = "") -> OneShot:
    """Open a manifest for verdicts; says on stderr if files of the project are not committed."""
    one_shot = OneShot(manifest, base=base)
    if one_shot.project.snapshot:
        print_note(one_shot.project.snapshot)
    return one_shot


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


def measure(request: EvaluateRequest | ReportedRequest | Verdict, card_gate: Gate, *, predict: str,
            quiet: bool, cancel: threading.Event | None = None) -> Verdict:
    """Return the verdict on a candidate, measured on an idle card unless it is known already.

    Raises NoDeviceAvailable, or Cancelled when `cancel` is set.
    """
    if isinstance(request, Verdict):
        return request
    with card_gate.card("verdict") as device, stages(quiet=quiet) as progress:
        verdict = harness_client.evaluate(
            replace(request, device=device.id, settings=replace(request.settings, predict=predict)),
            progress=progress, cancel=cancel)
    return replace(verdict, notes=(*company_notes(verdict), *verdict.notes))


def company_notes(verdict: Verdict) -> list[str]:
    """Return notes about other processes that used the card during the measurement."""
    stranger = gate.void_reason(verdict)
    return [f"{stranger}: judge again when it is gone"] if stranger else \
        list(filter(None, [gate.resident_processes(verdict)]))


@contextmanager
def stages(*, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """Yield a callback that prints the current stage to stderr; elsewhere than at a terminal only
    what it waits for, and stages that take long."""
    if quiet:
        yield lambda line: None
        return
    line = StageLine() if sys.stderr.isatty() else StageLog()
    ticker = threading.Thread(target=line.tick, name="kopt-stage", daemon=True)
    ticker.start()
    try:
        yield line.show
    finally:
        line.ended.set()
        ticker.join()
        line.end()


class StageLine:
    """The current stage on one line of a terminal, with its seconds where it takes some."""

    every_s = 1.0

    def __init__(self) -> None:
        self.ended = threading.Event()
        self._stage, self._began = "", time.monotonic()
        self._lock = threading.Lock()

    def show(self, line: Progress) -> None:
        with self._lock:
            self._stage = f"{line.stage} {phrases.clean(line.detail)}"
            self._began = time.monotonic()
            self.enter(line)

    def tick(self) -> None:
        """Print the seconds of the stage until `ended` is set."""
        while not self.ended.wait(self.every_s):
            with self._lock:
                seconds = int(time.monotonic() - self._began)
                if self._stage and seconds >= SLOW_S:
                    self.write(f"{self._stage}, {seconds} s")

    def enter(self, line: Progress) -> None:
        self.write(self._stage)

    def end(self) -> None:
        """Clear the line for what comes next."""
        self.write("")

    def write(self, text: str) -> None:
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


class StageLog(StageLine):
    """The stages that take long, and what others wait for, as lines of their own."""

    every_s = 30.0

    def enter(self, line: Progress) -> None:
        print_wait(line)

    def end(self) -> None:
        """Leave the lines as they are."""

    def write(self, text: str) -> None:
        print_note(text)


def print_wait(line: Progress) -> None:
    """Print what the harness waits for, such as another kopt that measures on the device."""
    if line.stage == "waiting":
        print_note(line.detail)


def card_name(predict: str, language: str) -> str:
    """Return the harness's name for the card of --predict, "" without one.

    Raises InputError for an unknown card, and for a target that is not a Triton kernel.
    """
    card = card_for(predict, language)
    return "" if card is None else card.name
