"""How many more whole runs fit into the seconds that they may take together."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class TimeBudget:
    """The seconds that are left for runs, and what one has taken; without a number, any."""

    def __init__(self, left_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._left_s = clock, left_s
        self.until = None if left_s is None else clock() + left_s
        self.longest_s = 0.0
        self.full = False
        """Whether something did not fit."""

    def run(self, work: Callable[[], T]) -> T:
        """Return what a run comes to, and note how long it was."""
        began = self._clock()
        try:
            return work()
        finally:
            self.longest_s = max(self.longest_s, self._clock() - began)
            self.full = self.full or not self.holds(0)

    def holds(self, runs: int) -> bool:
        """Tell whether so many more runs fit; it is full once some do not."""
        fits = self.until is None or self._clock() + runs * self.longest_s < self.until
        self.full = self.full or not fits
        return fits

    @property
    def words(self) -> str:
        """Say what there is room for, and what a run takes."""
        one = f", one run takes about {self.longest_s:.0f} s" if self.longest_s else ""
        return f"{self._left_s or 0.0:.0f} s are left{one}"
