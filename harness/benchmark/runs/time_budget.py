"""Decide how many more whole runs fit into a time budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class TimeBudget:
    """The seconds left for runs and the longest run so far; `left_s` None means no limit."""

    def __init__(self, left_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._left_s = clock, left_s
        self.until = None if left_s is None else clock() + left_s
        self.longest_s = 0.0
        self.is_full = False
        """Whether a run did not fit."""

    def run(self, work: Callable[[], T]) -> T:
        """Do a run, note its seconds and return its result."""
        began = self._clock()
        try:
            return work()
        finally:
            self.longest_s = max(self.longest_s, self._clock() - began)
            self.is_full = self.is_full or not self.holds(0)

    def holds(self, runs: int) -> bool:
        """Return whether so many more of the longest runs fit; if not, the budget is full."""
        fits = self.until is None or self._clock() + runs * self.longest_s < self.until
        self.is_full = self.is_full or not fits
        return fits

    @property
    def description(self) -> str:
        """Return the budget and the seconds of a run in words."""
        of_run = f", one run takes about {self.longest_s:.0f} s" if self.longest_s else ""
        return f"{self._left_s or 0.0:.0f} s are left{of_run}"
