"""Measure end to end: run the whole program that uses the kernel, with the best and without it.

A kernel's gain may not help the program. Whole runs of both alternate, three of each; the cost is a
number that the program prints, or its wall time by the harness's clock.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from harness.benchmark.runs import clean_runs, command_session
from harness.benchmark.runs.clean_runs import CleanRuns
from harness.benchmark.runs.command_session import ORDER, CommandSession, Progress
from harness.benchmark.runs.result_table import BenchmarkFault
from harness.benchmark.runs.workdir import WorkingCopy
from harness.benchmark.spec import metric_units
from harness.benchmark.spec.command_target import EndToEndTarget
from harness.devices.device import Device
from harness.errors import InputError
from harness.formats.text import plain
from harness.isolation.device_lock import DeviceLock
from harness.isolation.process_outcome import ProcessOutcome
from harness.settings import Settings, Trees
from harness.timing import stats
from harness.timing.outcome import SURE
from harness.verdict import ClassOutcome, Evidence, Row, Verdict, rejected

T = TypeVar("T")
RUNS = 3
"""Runs of each side, if there is time for them."""
LEFT_OUT = "left-out"
"""The kind of evidence that says that there was no time to measure."""
CLASS = "end to end"
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


def value_in(text: str, name: str) -> float:
    """Return the last number after a name, as in `tokens/s: 41.2`. Raises BenchmarkFault."""
    numbers = re.findall(
        rf"(?<![\w/]){re.escape(name)}\"?\s*[:=]?\s*({_NUMBER})(?!\w|[.,]\d)", text)
    if not numbers:
        raise BenchmarkFault("missing-column", f"prints no {name}",
                             fix=f"print a line `{name}: 1.23`")
    value = float(numbers[-1])
    if not 0 < value < math.inf:
        raise BenchmarkFault("not-positive", f"{name} is {numbers[-1]}, not a number above zero")
    return value


def measure_end_to_end(target: EndToEndTarget, trees: Trees, device: Device, settings: Settings, *,
                       progress: Progress | None = None,
                       cancel: threading.Event | None = None) -> Verdict:
    """Return a verdict of one row. The target has passed `validate.check`.

    Raises EnvironmentFault, Cancelled, and InputError if the program also fails without the best.
    """
    began = time.monotonic()
    with EndToEndRuns(target, trees, device, settings, progress, cancel) as runs:
        verdict = runs.verdict()
    return replace(verdict, device=device.name, alpha=SURE, candidate_id=settings.candidate_id,
                   incumbent_tree=settings.incumbent_tree,
                   wall_s=round(time.monotonic() - began, 3))


class EndToEndRuns(CommandSession):
    """The whole runs of both sides within a time budget."""

    def __init__(self, target: EndToEndTarget, trees: Trees, device: Device, settings: Settings,
                 progress: Progress | None, cancel: threading.Event | None) -> None:
        self.target, self.budget = target, TimeBudget(target.left_s)
        super().__init__(
            Path(settings.scratch) / "end-to-end", device,
            replace(command_session.environment_of(device, settings, target.timeout_s, cancel),
                    until=self.budget.until),
            frozen=target.frozen, progress=progress)
        self._trees = {"incumbent": trees.incumbent, "candidate": trees.candidate}
        self._metric = None if target.metric is None else metric_units.resolve(target.metric)
        self._clean_runs = CleanRuns()

    def verdict(self) -> Verdict:
        """Return the comparison, a rejection, or that there was no time."""
        try:
            with clean_runs.watch(self.device) as self._clean_runs:
                verdict = self._compare()
        except BenchmarkFault as fault:
            if fault.kind == "timeout" and (self.budget.is_full or self.environment.is_late):
                reason = f"not run: {self.budget.description}"
                return rejected(reason, Evidence(kind=LEFT_OUT, detail=reason))
            verdict = rejected(f"end to end: {fault}")
        return replace(verdict, evidence=self._clean_runs.evidence())

    def _compare(self) -> Verdict:
        commands = [self.target.setup_command, self.target.build_command, self.target.command]
        self.rehearse(self._trees["incumbent"], list(filter(None, commands)))
        copies = {name: self.copy(name, tree) for name, tree in self._trees.items()}
        costs: dict[str, list[float]] = {name: [] for name in copies}
        for name, copy in copies.items():
            for command in filter(None, (self.target.setup_command, self.target.build_command)):
                self._with_lock(name, partial(copy.run, command))
        try:
            for number in range(RUNS):
                self._run_pair(number, copies, costs)
        except BenchmarkFault as fault:
            if fault.kind != "timeout" or not self.budget.is_full or not all(costs.values()):
                raise
        return self._summary(costs)

    def _run_pair(self, number: int, copies: Mapping[str, WorkingCopy],
                  costs: dict[str, list[float]]) -> None:
        """Run both sides once. Raises BenchmarkFault if there is no time for that."""
        for ahead, name in zip((2, 1), ORDER[::-1] if number % 2 else ORDER, strict=True):
            if not self.budget.holds(ahead):
                raise BenchmarkFault("timeout", self.budget.description)
            done = sum(map(len, costs.values())) / (2 * RUNS)
            self.progress("timing", f"{CLASS}, run {number + 1} of {RUNS}", done)
            costs[name].append(self.budget.run(
                partial(self._with_lock, name, partial(self._timed_cost, name, copies))))

    def _timed_cost(self, name: str, copies: Mapping[str, WorkingCopy], *,
                    lock: DeviceLock) -> float:
        """Return the cost of one undisturbed run of the whole program."""
        def run(side: str) -> float:
            return self._clean_runs.run(side, lambda: self._cost(
                copies[side].run(self.target.command, lock=lock)))

        return self._clean_runs(lambda: run(name), alone=lambda: run("incumbent"))

    def _with_lock(self, name: str, work: Callable[..., T]) -> T:
        """Do a side's work under the lock."""
        try:
            with self.lock() as held:
                return work(lock=held)
        except ValueError as error:
            raise InputError(str(error), where="e2e_command") from None
        except BenchmarkFault as fault:
            if name == "candidate" or self.environment.is_late:
                raise
            raise InputError(f"also fails without the best: {fault}", where="e2e_command",
                             fix="run it in a checkout of the project") from None

    def _cost(self, outcome: ProcessOutcome) -> float:
        if self._metric is None:
            return outcome.wall_s * 1e6
        printed = outcome.stdout.decode(errors="replace")
        return self._metric.cost(value_in(printed, self._metric.name))

    def _summary(self, costs: Mapping[str, list[float]]) -> Verdict:
        """Return the verdict on all pairs that were completed."""
        ratios = [math.log(before / after) for before, after in
                  zip(costs["incumbent"], costs["candidate"], strict=False)]
        runs = len(ratios)
        value = stats.estimate(ratios, SURE)
        has_interval = runs > 1
        low, high = (value.low, value.high) if has_interval else (None, None)
        outcome: ClassOutcome = "unmeasured" if not has_interval else \
            "faster" if value.low > 0 else "slower" if value.high < 0 else "tie"
        incumbent_us, latency_us = (
            stats.geometric_mean(costs[name][:runs], [1] * runs) for name in ORDER)
        row = Row(config_class=CLASS, correct=True, latency_us=latency_us, outcome=outcome,
                  incumbent_us=incumbent_us, log_ratio=value.mean, low=low, high=high,
                  stderr=value.stderr if has_interval else None, pairs=value.pairs)
        fewer = "" if runs == RUNS else f"; not {RUNS}, because {self.budget.description}"
        what = "its wall time" if self.target.metric is None else \
            plain(self.target.metric.name, 80)
        return Verdict(
            valid=True, correct=True, rows=(row,), latency_us=latency_us, latency_kind="reported",
            speedup=math.exp(value.mean), speedup_low=None if low is None else math.exp(low),
            speedup_high=None if high is None else math.exp(high),
            notes=(f"{runs} whole run{'s' if has_interval else ''} of each side, alternating, by "
                   f"{what}{fewer}",))


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
        """Return whether `runs` more runs as long as the longest fit; if not, set `is_full`."""
        fits = self.until is None or self._clock() + runs * self.longest_s < self.until
        self.is_full = self.is_full or not fits
        return fits

    @property
    def description(self) -> str:
        """Return the budget and the seconds of a run in words."""
        of_run = f" and one run takes up to {self.longest_s:.0f} s" if self.longest_s else ""
        return f"the time limit was {self._left_s or 0.0:.0f} s{of_run}"
