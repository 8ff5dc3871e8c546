"""What a card was like while it was timed on: which blocks do not count, and what to tell of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter_ns

from harness.devices.device import Device
from harness.devices.monitoring import telemetry, telemetry_nvidia
from harness.devices.monitoring.telemetry import CardHealth, TelemetryWatch
from harness.devices.monitoring.telemetry_amd import SmiSource
from harness.devices.monitoring.telemetry_nvidia import NvmlSource, SharingMode
from harness.devices.monitoring.tenants import StrangerDetector
from harness.errors import DeviceFault
from harness.verdict import Evidence

RUNNERS = 24
"""At most so many processes of one evaluation hold a context: pairs, the oracle, those ending."""
SMI_S = 3.0
"""Between two samples by a tool that is a program of its own."""
COMPANY = "company"
"""The kind of evidence of processes that were there before."""
STRANGER = "stranger"
"""The kind of evidence of those among them that no kopt has started."""
ENDING_S = 0.5
"""So long a process may be listed whose kopt has ended it."""


class InterferenceMonitor:
    """Voids blocks under a slowdown, or during which a process came that is not ours.

    One that was there before is told, and voids nothing: both sides are measured beside it. Which
    of them no kopt has started, `strangers` says, where there are `neighbours` of each watch's
    card; whether that may be is the gate's to say. A slowdown in a smaller share of the samples
    than `share` voids nothing either.

    Where samples are slow, what is asked about waits for one if this is `patient`; else they void
    no block, and at the end all of it or nothing.
    """

    def __init__(self, *watches: TelemetryWatch, share: float = 0.0, patient: bool = False,
                 neighbours: Sequence[StrangerDetector] = ()) -> None:
        self._watches, self._share, self._patient = watches, share, patient
        self._windows: list[tuple[int, int]] = []
        self._catch_up()
        now = perf_counter_ns()
        there = [frozenset(watch.between(now, now).foreign) for watch in watches]
        self.residents = frozenset(pid for one in there for pid in one)
        self.strangers = frozenset(pid for near, one in zip(neighbours, there, strict=False)
                                   for pid in _strangers(near, one))

    def voids(self, begin_ns: int, end_ns: int) -> str:
        """Say why a block in this window (perf_counter_ns) does not count, empty when it does."""
        if self._patient:
            self._catch_up()
        why = self._why([watch.between(begin_ns, end_ns) for watch in self._watches
                         if watch.prompt or self._patient])
        if not why:
            self._windows.append((begin_ns, end_ns))
        return why

    def voids_all(self) -> str:
        """Say why nothing of it counts, by what slow samples have shown; empty when it does."""
        self._catch_up()
        return self._why([watch.over(self._windows) for watch in self._watches
                          if not watch.prompt])

    def _catch_up(self) -> None:
        for watch in self._watches:
            if not watch.prompt:
                watch.catch_up()

    def _why(self, seen: Sequence[CardHealth]) -> str:
        newcomers = [str(pid) for one in seen for pid in one.foreign if pid not in self.residents]
        slowed = [reason for one in seen if one.slowed_share >= self._share
                  for reason in one.slowdown]
        return "; ".join([*dict.fromkeys(slowed), *(
            [f"process {', '.join(newcomers)} came onto the card"] if newcomers else [])])

    def evidence(self, voided: Mapping[str, int]) -> Iterator[Evidence]:
        """Yield clocks, temperature and power of the blocks that count, and how many did not."""
        for number, watch in enumerate(self._watches):
            yield from telemetry.evidence(watch.over(self._windows), None if number else voided)
        if self.residents:
            pids = ", ".join(map(str, sorted(self.residents)))
            yield Evidence(kind=COMPANY, detail=f"on the card all the while: process {pids}")
        if self.strangers:
            pids = ", ".join(map(str, sorted(self.strangers)))
            yield Evidence(kind=STRANGER, detail=f"timed beside process {pids}, of no kopt")


def require_usable(device: Device) -> SharingMode:
    """Return who may use a card. Raises DeviceFault where nobody may."""
    modes = [telemetry_nvidia.sharing_mode(card) for card in device.cards]
    for mode in modes:
        if mode.prohibited:
            raise DeviceFault(mode.words, where=device.id,
                              fix="use another card, or have its compute mode set to DEFAULT")
    return next((mode for mode in modes if mode.one_process), modes[0])


@contextmanager
def monitored(device: Device, *, runners: int = RUNNERS, share: float = 0.0,
         patient: bool = False) -> Iterator[InterferenceMonitor | None]:
    """Watch a device for as long as it is timed on; None for one that has no clocks to read.

    At most so many `runners` may be ours; `share` and `patient` are as for a Vigil.
    """
    if device.kind == "cpu":
        yield None
        return
    with ExitStack() as stack:
        yield InterferenceMonitor(
            *(stack.enter_context(_watch(card, runners)) for card in device.cards),
            share=share,
            patient=patient,
            neighbours=[StrangerDetector(card.lock_name) for card in device.cards],
        )


def _watch(card: Device, runners: int) -> TelemetryWatch:
    if card.kind == "nvidia":
        return TelemetryWatch(NvmlSource(card.uuid), runners=lambda: runners)
    return TelemetryWatch(SmiSource(card), runners=lambda: runners, interval_s=SMI_S, prompt=False)


def _strangers(near: StrangerDetector, listed: Set[int]) -> Set[int]:
    """Return who of those listed on a card is of no kopt. Who is ending has left its family, and is
    asked about again.

    That they are named shows that ours are listed too, by pids of this namespace.
    """
    found = near.strangers({*listed, os.getpid()}) if listed else set()
    if found:
        time.sleep(ENDING_S)
        found &= near.strangers({*listed, os.getpid()})
    return {pid for pid in found if Path(f"/proc/{pid}").exists()}
