"""End to end: the whole program that a kernel is a part of, run with the best and without it.

A gain of a kernel may be none of the program's, and may even cost it something. Whole runs of the
base and of the best alternate, three of each; what counts is a number that the program prints, or
else its own time by our clock.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from harness.benchmark.runs import clean_runs
from harness.benchmark.runs.alternating_runs import ORDER
from harness.benchmark.runs.result_table import BenchmarkFault
from harness.benchmark.runs.time_budget import TimeBudget
from harness.benchmark.runs.workdir import COMMAND_LIMITS, CommandEnvironment, WorkingCopy
from harness.benchmark.spec import metric_units
from harness.benchmark.spec.command_target import EndToEndTarget
from harness.devices.device import Device
from harness.errors import InputError
from harness.formats import file_copy
from harness.formats.text import plain
from harness.isolation import device_lock as lock
from harness.isolation import guard
from harness.isolation.device_lock import DeviceLock
from harness.isolation.guard import ProcessOutcome
from harness.settings import Settings, Trees
from harness.timing import stats
from harness.timing.outcome import SURE
from harness.verdict import ClassOutcome as Ruled
from harness.verdict import Evidence, Row, Verdict, rejected

T = TypeVar("T")
RUNS = 3
"""Runs of each side, where there is time for them."""
LEFT_OUT = "left-out"
"""The evidence of a verdict that only says that there was no time for it."""
CLASS = "end to end"
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


def value_in(text: str, name: str) -> float:
    """Return the last number that a program prints after a name, as in `tokens/s: 41.2`.

    Raises Fault where there is none, or it is not above zero.
    """
    found = re.findall(rf"(?<![\w/]){re.escape(name)}\"?\s*[:=]?\s*({_NUMBER})(?!\w|[.,]\d)", text)
    if not found:
        raise BenchmarkFault(
            "missing-column", f"prints no {name}", fix=f"print a line `{name}: 1.23`"
        )
    value = float(found[-1])
    if not 0 < value < math.inf:
        raise BenchmarkFault("not-positive", f"{name} is {found[-1]}, no number above zero")
    return value


def measure(of: EndToEndTarget, trees: Trees, device: Device, settings: Settings, *,
            progress: Callable[[str, str, float | None], None] | None = None,
            cancel: threading.Event | None = None) -> Verdict:
    """Return a verdict of one row. Raises InputError where the program fails without the best, or
    its metric means nothing, EnvironmentFault and Cancelled.
    """
    return _Runs(of, trees, device, settings, progress or (lambda *_: None), cancel).verdict()


class _Runs:
    def __init__(self, of: EndToEndTarget, trees: Trees, device: Device, settings: Settings,
                 progress: Callable[[str, str, float | None], None],
                 cancel: threading.Event | None) -> None:
        self.of, self.device, self.settings = of, device, settings
        self._progress, self._cancel = progress, cancel
        self._folder = Path(settings.scratch) / "end-to-end"
        self._room = TimeBudget(of.left_s)
        self._trees = {"incumbent": trees.incumbent, "candidate": trees.candidate}
        try:
            self._metric = metric_units.resolve(of.metric) if of.metric is not None else None
        except ValueError as error:
            raise InputError(str(error), where="e2e_metric",
                             fix=metric_units.metric_help(of.metric) if of.metric else "") from None
        self._place = CommandEnvironment(
            env={**settings.env, **device.visible_env},
            python=settings.python,
            nodes=device.all_nodes,
            warm=settings.warm_cache,
            until=self._room.until,
            limits=replace(COMMAND_LIMITS, wall_s=of.timeout_s),
            cancel=cancel,
        )

    def verdict(self) -> Verdict:
        began = time.monotonic()
        try:
            with clean_runs.watch(self.device) as self._undisturbed:
                verdict = self._compared()
            verdict = replace(verdict, evidence=self._undisturbed.evidence())
        except BenchmarkFault as fault:
            verdict = replace(rejected(f"end to end: {fault}"),
                              evidence=self._undisturbed.evidence())
            if fault.kind == "timeout" and (self._room.full or self._place.late):
                why = f"not run: {self._room.words}"
                verdict = replace(rejected(why), evidence=(Evidence(kind=LEFT_OUT, detail=why),))
        finally:
            file_copy.remove(self._folder)
        return replace(verdict, device=self.device.name, alpha=SURE,
                       candidate_id=self.settings.candidate_id,
                       incumbent_tree=self.settings.incumbent_tree,
                       wall_s=round(time.monotonic() - began, 3))

    def _compared(self) -> Verdict:
        self._rehearse()
        sides = {
            name: WorkingCopy(name, Path(tree), self._folder / name, self._place, self.of.frozen)
            for name, tree in self._trees.items()
        }
        costs: dict[str, list[float]] = {name: [] for name in sides}
        for name, side in sides.items():
            for command in filter(None, (self.of.setup_command, self.of.build_command)):
                self._run(name, partial(side.run, command))
        try:
            for number in range(RUNS):
                self._pair(number, sides, costs)
        except BenchmarkFault as fault:
            if fault.kind != "timeout" or not self._room.full or not all(costs.values()):
                raise
        return self._summed_up(costs)

    def _pair(self, number: int, sides: Mapping[str, WorkingCopy],
              costs: dict[str, list[float]]) -> None:
        """Run both sides once; raises Fault where there is no time for that."""
        for ahead, name in zip((2, 1), ORDER[::-1] if number % 2 else ORDER, strict=True):
            if not self._room.holds(ahead):
                raise BenchmarkFault("timeout", self._room.words)
            done = sum(map(len, costs.values())) / (2 * RUNS)
            self._progress("timing", f"{CLASS}, run {number + 1} of {RUNS}", done)
            costs[name].append(self._room.run(
                partial(self._run, name, partial(self._timed, name, sides))))

    def _rehearse(self) -> None:
        """See whether a GPU works for the base inside namespaces; where not, confine nobody."""
        if self.device.kind == "cpu" or guard.confinement_problem():
            return
        side = WorkingCopy("rehearsal", Path(self._trees["incumbent"]), self._folder / "rehearsal",
                    self._place, self.of.frozen)
        try:
            with self._lock() as held:
                for command in (self.of.setup_command, self.of.build_command, self.of.command):
                    if command:
                        side.run(command, lock=held)
        except BenchmarkFault:
            self._place = replace(self._place, confined=False)

    def _timed(self, name: str, sides: Mapping[str, WorkingCopy], *, lock: DeviceLock) -> float:
        """Return what a run of the whole program cost while nobody disturbed it."""
        def run(one: str) -> float:
            return self._undisturbed.run(one, lambda: self._cost(
                sides[one].run(self.of.command, lock=lock)))

        return self._undisturbed(lambda: run(name), alone=lambda: run("incumbent"))

    def _run(self, name: str, work: Callable[..., T]) -> T:
        """Do what needs the card; a disturbed build is not repeated in the tree that it changed."""
        try:
            with self._lock() as held:
                return work(lock=held)
        except ValueError as error:
            raise InputError(str(error), where="e2e_command") from None
        except BenchmarkFault as fault:
            if name == "candidate" or self._place.late:
                raise
            raise InputError(f"fails without the best as well: {fault}", where="e2e_command",
                             fix="run it in a checkout of the project") from None

    def _cost(self, outcome: ProcessOutcome) -> float:
        if self._metric is None:
            return outcome.wall_s * 1e6
        said = outcome.stdout.decode(errors="replace")
        return self._metric.cost(value_in(said, self._metric.name))

    def _summed_up(self, costs: dict[str, list[float]]) -> Verdict:
        ratios = [math.log(before / after) for before, after in
                  zip(costs["incumbent"], costs["candidate"], strict=False)]
        runs = len(ratios)
        value = stats.estimate(ratios, SURE)
        sure = runs > 1
        outcome: Ruled = "faster" if value.low > 0 else "slower" if value.high < 0 else "tie"
        before, latency = (
            math.exp(stats.weighted_mean(list(map(math.log, costs[name][:runs])), [1] * runs))
            for name in ORDER)
        row = Row(config_class=CLASS, correct=True, latency_us=latency,
                  outcome=outcome if sure else "unmeasured",
                  incumbent_us=before, log_ratio=value.mean,
                  low=value.low if sure else None, high=value.high if sure else None,
                  stderr=value.stderr if sure else None, pairs=value.pairs)
        few = "" if runs == RUNS else f"; not {RUNS}: {self._room.words}"
        what = "its wall time" if self.of.metric is None else plain(self.of.metric.name, 80)
        return Verdict(valid=True, correct=True, rows=(row,), latency_us=latency,
                       latency_kind="reported", speedup=math.exp(value.mean),
                       speedup_low=math.exp(value.low) if sure else None,
                       speedup_high=math.exp(value.high) if sure else None,
                       notes=(f"{runs} whole run{'s' if sure else ''} of each side in turn, by "
                              f"{what}{few}",))

    @contextmanager
    def _lock(self) -> Iterator[DeviceLock]:
        with lock.acquire(*self.device.lock_names, shared_device=self.device.kind == "cpu",
                          cancel=self._cancel, on_wait=lambda text: self._progress(
                              "waiting", text, None)) as held:
            yield held
