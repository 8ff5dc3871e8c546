"""Whole runs of a benchmark that count: on a card that was nobody else's and not slowed down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TypeVar

from harness import vigil
from harness.device import Device
from harness.errors import DeviceFault
from harness.reported.series import SickIncumbent
from harness.reported.table import Fault
from harness.verdict import Evidence
from harness.vigil import Vigil

T = TypeVar("T")
MOST_VOIDED = 3
"""Times that the same runs are repeated."""


class Undisturbed:
    """Does work again that somebody disturbed, and counts how often; `watching` tells of that."""

    def __init__(self, watching: Vigil | None = None) -> None:
        self._watching = watching
        self.voided: Counter[str] = Counter()

    def __call__(self, work: Callable[[], T]) -> T:
        """Return what came of work while nobody disturbed it. A run that failed meanwhile may have
        failed for that: it is repeated as well.

        Raises DeviceFault when the card is not left alone, and what the work raises.
        """
        for _ in range(1 + MOST_VOIDED):
            began_ns = perf_counter_ns()
            try:
                result = work()
            except (Fault, SickIncumbent):
                if not (why := self._why(began_ns)):
                    raise
            else:
                if not (why := self._why(began_ns)):
                    return result
            self.voided[why] += 1
        raise DeviceFault(f"{1 + MOST_VOIDED} runs one after the other had to be voided: {why}",
                          where="the card", fix="try again when it is free and cool")

    def evidence(self) -> tuple[Evidence, ...]:
        """Return how the card was during the runs that count, and how many did not."""
        return () if self._watching is None else tuple(self._watching.evidence(self.voided))

    def _why(self, began_ns: int) -> str:
        return "" if self._watching is None else self._watching.voids(began_ns, perf_counter_ns())


@contextmanager
def over(device: Device) -> Iterator[Undisturbed]:
    """Watch a device for as long as benchmarks run on it. Raises DeviceFault where none may."""
    if device.kind == "nvidia":
        vigil.usable(device)
    with vigil.over(device) as watching:
        yield Undisturbed(watching)
