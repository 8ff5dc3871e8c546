"""Decide which timed blocks a card's slowdowns and foreign processes void, and report its state."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter_ns

from harness.devices.device import Device
from harness.devices.monitoring import telemetry, telemetry_sources
from harness.devices.monitoring.telemetry import CardHealth, TelemetryWatch
from harness.devices.monitoring.telemetry_sources import NvmlSource, SharingMode, SmiSource
from harness.devices.monitoring.tenants import StrangerDetector
from harness.errors import DeviceFault
from harness.verdict import Evidence

RUNNERS = 24
"""Maximum number of GPU contexts of one evaluation: pairs, oracle, processes that are ending."""
SMI_S = 3.0
"""Seconds between two samples, where each sample starts a program."""
COMPANY = "company"
"""Kind of evidence: processes that were on the card before the measurement."""
STRANGER = "stranger"
"""Kind of evidence: those of these processes that no kopt started."""
ENDING_S = 0.5
"""How long a driver may still list a process that its kopt has ended."""


class InterferenceMonitor:
    """Voids timed blocks in which the card slowed down or a foreign process appeared on it.

    Foreign processes that were there before the monitor void nothing, since they affect both sides
    alike: they are `residents`. `strangers` are the residents that no kopt started, as found by a
    detector for each card; the engine's gate decides whether to accept them. A slowdown in a
    smaller share of the samples than `share` voids nothing.

    With slow samples, a `patient` monitor waits for one after each block. Otherwise slow samples
    void no single block; `voids_all` then voids the whole measurement or nothing.
    """

    def __init__(self, *watches: TelemetryWatch, share: float = 0.0, patient: bool = False,
                 detectors: Sequence[StrangerDetector] = ()) -> None:
        self._watches, self._share, self._patient = watches, share, patient
        self._windows: list[tuple[int, int]] = []
        self._catch_up()
        now = perf_counter_ns()
        present = [frozenset(watch.between(now, now).foreign) for watch in watches]
        self.residents = frozenset(pid for pids in present for pid in pids)
        self.strangers = frozenset(pid for detector, pids in zip(detectors, present, strict=False)
                                   for pid in _strangers(detector, pids))

    def voids(self, begin_ns: int, end_ns: int) -> str:
        """Return why a timed block in this window (perf_counter_ns) is void; empty if it counts."""
        if self._patient:
            self._catch_up()
        reason = self._reason([watch.between(begin_ns, end_ns) for watch in self._watches
                               if watch.prompt or self._patient])
        if not reason:
            self._windows.append((begin_ns, end_ns))
        return reason

    def voids_all(self) -> str:
        """Return why slow samples void the whole measurement; empty if it counts."""
        self._catch_up()
        return self._reason([watch.over(self._windows) for watch in self._watches
                             if not watch.prompt])

    def _catch_up(self) -> None:
        for watch in self._watches:
            if not watch.prompt:
                watch.catch_up()

    def _reason(self, healths: Sequence[CardHealth]) -> str:
        newcomers = [str(pid) for health in healths for pid in health.foreign
                     if pid not in self.residents]
        slowdowns = [reason for health in healths if health.slowed_share >= self._share
                     for reason in health.slowdown]
        return "; ".join([*dict.fromkeys(slowdowns), *(
            [f"process {', '.join(newcomers)} started to use the card"] if newcomers else [])])

    def evidence(self, voided: Mapping[str, int]) -> Iterator[Evidence]:
        """Yield clocks, temperature and power during valid blocks, the number of void ones, and
        the foreign processes that were there throughout.
        """
        for number, watch in enumerate(self._watches):
            yield from telemetry.evidence(watch.over(self._windows), None if number else voided)
        if self.residents:
            pids = ", ".join(map(str, sorted(self.residents)))
            yield Evidence(kind=COMPANY, detail=f"on the card throughout: process {pids}")
        if self.strangers:
            pids = ", ".join(map(str, sorted(self.strangers)))
            yield Evidence(kind=STRANGER,
                           detail=f"timed while process {pids} ran, which no kopt started")


def require_usable(device: Device) -> SharingMode:
    """Return how processes may share a device. Raises DeviceFault if none may use it."""
    modes = [telemetry_sources.sharing_mode(card) for card in device.cards]
    for mode in modes:
        if mode.prohibited:
            raise DeviceFault(mode.note, where=device.id,
                              fix="use another card, or have its compute mode set to DEFAULT")
    return next((mode for mode in modes if mode.one_process), modes[0])


@contextmanager
def monitored(device: Device, *, runners: int = RUNNERS, share: float = 0.0,
              patient: bool = False) -> Iterator[InterferenceMonitor | None]:
    """Monitor a device on which kopt has at most `runners` processes; yield None for the CPU."""
    if device.kind == "cpu":
        yield None
        return
    with ExitStack() as stack:
        yield InterferenceMonitor(
            *(stack.enter_context(_watch(card, runners)) for card in device.cards),
            share=share, patient=patient,
            detectors=[StrangerDetector(card.lock_name) for card in device.cards])


def _watch(card: Device, runners: int) -> TelemetryWatch:
    if card.kind == "nvidia":
        return TelemetryWatch(NvmlSource(card.uuid), runners=runners)
    return TelemetryWatch(SmiSource(card), runners=runners, interval_s=SMI_S, prompt=False)


def _strangers(detector: StrangerDetector, foreign: Set[int]) -> Set[int]:
    """Return the foreign pids on a card that no kopt started.

    A second check excludes processes that are ending, which have left their process tree already.
    This process's own pid is passed as well: it shows the detector that listed pids are of this
    namespace, which is known wherever foreign pids are named.
    """
    strangers = detector.strangers({*foreign, os.getpid()}) if foreign else set()
    if strangers:
        time.sleep(ENDING_S)
        strangers &= detector.strangers({*foreign, os.getpid()})
    return {pid for pid in strangers if Path(f"/proc/{pid}").exists()}
