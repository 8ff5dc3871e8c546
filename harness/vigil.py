"""What a card was like while it was timed on: which blocks do not count, and what to tell of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from time import perf_counter_ns

from harness import health, health_nvidia
from harness.device import Device
from harness.errors import DeviceFault
from harness.health import Watch
from harness.health_nvidia import Mode, NvmlSource
from harness.verdict import Evidence

RUNNERS = 24
"""At most so many processes of one evaluation hold a context: pairs, the oracle, those ending."""

COMPANY = "company"
"""The kind of evidence of processes that were there before: the gate looks who they are."""


class Vigil:
    """Voids blocks under a slowdown, or during which a process came that is not ours.

    One that was there before is told, and voids nothing: both sides are measured beside it. Whether
    it may be there is the gate's to say. A
    slowdown in a smaller share of the samples than `share` voids nothing either.
    """

    def __init__(self, *watches: Watch, share: float = 0.0) -> None:
        self._watches, self._share = watches, share
        self._windows: list[tuple[int, int]] = []
        now = perf_counter_ns()
        self.residents = frozenset(pid for watch in watches
                                   for pid in watch.between(now, now).foreign)

    def voids(self, begin_ns: int, end_ns: int) -> str:
        """Say why a block in this window (perf_counter_ns) does not count, empty when it does."""
        seen = [watch.between(begin_ns, end_ns) for watch in self._watches]
        newcomers = [str(pid) for one in seen for pid in one.foreign if pid not in self.residents]
        slowed = [reason for one in seen if one.slowed_share >= self._share
                  for reason in one.slowdown]
        why = "; ".join([*dict.fromkeys(slowed), *(
            [f"process {', '.join(newcomers)} came onto the card"] if newcomers else [])])
        if not why:
            self._windows.append((begin_ns, end_ns))
        return why

    def evidence(self, voided: Mapping[str, int]) -> Iterator[Evidence]:
        """Yield clocks, temperature and power of the blocks that count, and how many did not."""
        for number, watch in enumerate(self._watches):
            yield from health.evidence(watch.over(self._windows), None if number else voided)
        if self.residents:
            pids = ", ".join(map(str, sorted(self.residents)))
            yield Evidence(kind=COMPANY, detail=f"on the card all the while: process {pids}")


def usable(device: Device) -> Mode:
    """Return who may use a card. Raises DeviceFault where nobody may."""
    modes = [health_nvidia.mode(card) for card in device.cards]
    for mode in modes:
        if mode.prohibited:
            raise DeviceFault(mode.words, where=device.id,
                              fix="use another card, or have its compute mode set to DEFAULT")
    return next((mode for mode in modes if mode.one_process), modes[0])


@contextmanager
def over(device: Device, *, runners: int = RUNNERS, share: float = 0.0) -> Iterator[Vigil | None]:
    """Watch a device for as long as it is timed on; None for one that has no clocks to read.

    At most so many `runners` may be ours; `share` is as for a Vigil.
    """
    if device.kind != "nvidia":
        yield None
        return
    with ExitStack() as stack:
        yield Vigil(*(stack.enter_context(Watch(NvmlSource(card.uuid), runners=lambda: runners))
                      for card in device.cards), share=share)
