"""Measure without a campaign: wait for an idle card, and note other processes that used it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from engine.run.one_shot import OneShot
from engine.verify import gate, harness_client
from engine.verify.fleet_device import DeviceNotice, DeviceUse
from harness.devices.device import Device
from harness.requests import EvaluateRequest, ReportedRequest
from harness.roofline.predictor import card_for
from harness.verdict import Verdict
from kopt_tui.cli.output import print_note
from kopt_tui.cli.stage_line import stages
from kopt_tui.snapshot import phrases


def open_target(manifest: Path, *, base: str = "") -> OneShot:
    """Open a manifest for verdicts; note on stderr if files of the project are not committed."""
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
        """Yield an idle card, or the CPU at once. Raises NoDeviceAvailable, and Cancelled."""
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
    """Return the verdict on a candidate: `request` if it is one, else measured on an idle card.

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
    return [f"{stranger}: repeat the verdict when it has ended"] if stranger else \
        list(filter(None, [gate.resident_processes(verdict)]))


def card_name(predict: str, language: str) -> str:
    """Return the harness's name for the card of --predict, "" without one.

    Raises InputError for an unknown card, and for a target that is not a Triton kernel.
    """
    card = card_for(predict, language)
    return "" if card is None else card.name
