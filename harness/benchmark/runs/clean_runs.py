"""Whole runs of a benchmark that count: on a card that was nobody else's and not slowed down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TypeVar

from harness.benchmark.runs.result_table import BenchmarkFault
from harness.benchmark.runs.run_pairs import BrokenIncumbent
from harness.benchmark.runs.workdir import COMMAND_LIMITS
from harness.devices.device import Device
from harness.devices.monitoring import interference
from harness.devices.monitoring.interference import InterferenceMonitor
from harness.errors import DeviceFault
from harness.verdict import Evidence

T = TypeVar("T")
MOST_VOIDED = 3
"""Times that the same runs are repeated."""
SLOWED = 0.05
"""Of a whole run's samples: a slowdown in fewer voids no run of minutes."""
BASE = "incumbent"


class CleanRuns:
    """Does work again that somebody disturbed, and counts how often; `watching` tells of that.

    Each side's runs within the work have windows of their own, which tell whom the disturbance
    came with: a candidate can heat a card on purpose.
    """

    def __init__(self, watching: InterferenceMonitor | None = None) -> None:
        self._watching = watching
        self._windows: list[tuple[str, int, int]] = []
        self.voided: Counter[str] = Counter()

    def run(self, name: str, work: Callable[[], T]) -> T:
        """Return what a side's run comes to, and note when that was."""
        began_ns = perf_counter_ns()
        try:
            return work()
        finally:
            self._windows.append((name, began_ns, perf_counter_ns()))

    def __call__(self, work: Callable[[], T], alone: Callable[[], object] | None = None) -> T:
        """Return what work comes to while nobody disturbs it. A run that failed meanwhile may have
        failed for that and is repeated as well. `alone` runs the incumbent, where work does not.

        Raises DeviceFault when the card is not left alone, Fault when that is so during the
        candidate's runs only, and what the work raises.
        """
        disturbed: dict[str, bool] = {}
        for _ in range(1 + MOST_VOIDED):
            failure: BenchmarkFault | BrokenIncumbent | None = None
            self._windows, began_ns = [], perf_counter_ns()
            try:
                result = work()
            except (BenchmarkFault, BrokenIncumbent) as error:
                failure = error
            if not (why := self._why(began_ns, disturbed)):
                if failure is not None:
                    raise failure
                return result
            self.voided[why] += 1
        told = f"{1 + MOST_VOIDED} runs one after the other had to be voided: {why}"
        if self._is_with_others(disturbed, alone):
            raise failure if isinstance(failure, BenchmarkFault) else BenchmarkFault(
                "disturbed", f"{told}, while none of the incumbent's was")
        raise DeviceFault(told, where="the card", fix="try again when it is free and cool")

    def evidence(self) -> tuple[Evidence, ...]:
        """Return how the card was during the runs that count, and how many did not."""
        return () if self._watching is None else tuple(self._watching.evidence(self.voided))

    def _why(self, began_ns: int, disturbed: dict[str, bool]) -> str:
        """Say why what was done since does not count; note which sides were disturbed."""
        if self._watching is None:
            return ""
        reasons = []
        for name, begin_ns, end_ns in self._windows or [("", began_ns, perf_counter_ns())]:
            reasons.append(self._watching.voids(begin_ns, end_ns))
            disturbed[name] = disturbed.get(name, False) or bool(reasons[-1])
        return "; ".join(dict.fromkeys(filter(None, reasons)))

    def _is_with_others(self, disturbed: dict[str, bool],
                        alone: Callable[[], object] | None) -> bool:
        """Tell whether named runs were disturbed, and none of the incumbent's."""
        if "" in disturbed or disturbed.get(BASE):
            return False
        if BASE in disturbed:
            return True
        if alone is None:
            return False
        self._windows, began_ns = [], perf_counter_ns()
        try:
            alone()
        except (BenchmarkFault, BrokenIncumbent):
            return False
        return not self._why(began_ns, {})


@contextmanager
def watch(device: Device) -> Iterator[CleanRuns]:
    """Watch a device for as long as benchmarks run on it. Raises DeviceFault where none may."""
    if device.kind == "nvidia":
        interference.require_usable(device)
    with interference.monitored(device, runners=COMMAND_LIMITS.processes, share=SLOWED,
                    patient=True) as watching:
        yield CleanRuns(watching)
