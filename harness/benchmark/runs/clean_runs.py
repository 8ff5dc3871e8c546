"""Repeat whole benchmark runs that other processes or a slowdown of the card disturbed."""

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
MAX_REPEATS = 3
SLOWDOWN_SHARE = 0.05
"""Share of a run's samples with a slowdown from which a run of minutes is void."""
BASE = "incumbent"


class CleanRuns:
    """Repeats disturbed work and notes the disturbed side: a candidate can heat a card on purpose.
    """

    def __init__(self, monitor: InterferenceMonitor | None = None) -> None:
        self._monitor = monitor
        self._windows: list[tuple[str, int, int]] = []
        self.voided: Counter[str] = Counter()

    def run(self, name: str, work: Callable[[], T]) -> T:
        """Do a side's run and note when it began and ended."""
        began_ns = perf_counter_ns()
        try:
            return work()
        finally:
            self._windows.append((name, began_ns, perf_counter_ns()))

    def __call__(self, work: Callable[[], T], alone: Callable[[], object] | None = None) -> T:
        """Repeat work until it is undisturbed, and return its result.

        Disturbed work that failed is repeated too. `alone` runs the incumbent, for comparison, if
        the work does not. Raises DeviceFault if every repetition was disturbed, BenchmarkFault if
        the candidate's runs were and none of the incumbent's, and what undisturbed work raises.
        """
        is_disturbed: dict[str, bool] = {}
        for _ in range(1 + MAX_REPEATS):
            failure: BenchmarkFault | BrokenIncumbent | None = None
            self._windows, began_ns = [], perf_counter_ns()
            try:
                result = work()
            except (BenchmarkFault, BrokenIncumbent) as error:
                failure = error
            if not (why := self._disturbance(began_ns, is_disturbed)):
                if failure is not None:
                    raise failure
                return result
            self.voided[why] += 1
        message = f"{1 + MAX_REPEATS} runs in a row were disturbed: {why}"
        if self._comes_with_candidate(is_disturbed, alone):
            raise failure if isinstance(failure, BenchmarkFault) else BenchmarkFault(
                "disturbed", f"{message}, while none of the incumbent's was")
        raise DeviceFault(message, where="the card", fix="try again when it is free and cool")

    def evidence(self) -> tuple[Evidence, ...]:
        """Return the state of the card during the valid runs, and the number of void ones."""
        return () if self._monitor is None else tuple(self._monitor.evidence(self.voided))

    def _disturbance(self, began_ns: int, is_disturbed: dict[str, bool]) -> str:
        """Return why the work since then is void, "" if it is not; note the disturbed sides."""
        if self._monitor is None:
            return ""
        reasons = []
        for name, begin_ns, end_ns in self._windows or [("", began_ns, perf_counter_ns())]:
            reasons.append(self._monitor.voids(begin_ns, end_ns))
            is_disturbed[name] = is_disturbed.get(name, False) or bool(reasons[-1])
        return "; ".join(dict.fromkeys(filter(None, reasons)))

    def _comes_with_candidate(self, is_disturbed: dict[str, bool],
                              alone: Callable[[], object] | None) -> bool:
        """Return whether runs of the candidate were disturbed, and none of the incumbent."""
        if "" in is_disturbed or is_disturbed.get(BASE):
            return False
        if BASE in is_disturbed:
            return True
        if alone is None:
            return False
        self._windows, began_ns = [], perf_counter_ns()
        try:
            alone()
        except (BenchmarkFault, BrokenIncumbent):
            return False
        return not self._disturbance(began_ns, {})


@contextmanager
def watch(device: Device) -> Iterator[CleanRuns]:
    """Watch a device while benchmarks run on it. Raises DeviceFault if it cannot be used."""
    if device.kind == "nvidia":
        interference.require_usable(device)
    with interference.monitored(device, runners=COMMAND_LIMITS.processes, share=SLOWDOWN_SHARE,
                    patient=True) as monitor:
        yield CleanRuns(monitor)
