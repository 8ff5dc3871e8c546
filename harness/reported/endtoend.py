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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from harness import copies, guard, lock, stats
from harness.compare import SURE
from harness.device import Device
from harness.errors import InputError
from harness.evaluate import Trees
from harness.guard import Outcome
from harness.lock import DeviceLock
from harness.reported import undisturbed, units
from harness.reported.duel import ORDER
from harness.reported.side import COMMAND_LIMITS, Place, Side
from harness.reported.table import Fault
from harness.reported.target import Metric
from harness.stage import Settings
from harness.text import plain
from harness.verdict import Outcome as Ruled
from harness.verdict import Row, Verdict, rejected

T = TypeVar("T")
RUNS = 3
"""Runs of each side."""
CLASS = "end to end"
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


@dataclass(frozen=True, kw_only=True)
class EndToEnd:
    """A command that runs the whole program; without a metric its wall time counts."""

    command: str
    metric: Metric | None = None
    setup_command: str = ""
    build_command: str = ""
    frozen: tuple[str, ...] = ()
    timeout_s: float = 3600.0


def value_in(text: str, name: str) -> float:
    """Return the last number that a program prints after a name, as in `tokens/s: 41.2`.

    Raises Fault where there is none, or it is not above zero.
    """
    found = re.findall(rf"(?<![\w/]){re.escape(name)}\"?\s*[:=]?\s*({_NUMBER})(?!\w|[.,]\d)", text)
    if not found:
        raise Fault("missing-column", f"prints no {name}", fix=f"print a line `{name}: 1.23`")
    value = float(found[-1])
    if not 0 < value < math.inf:
        raise Fault("not-positive", f"{name} is {found[-1]}, no number above zero")
    return value


def measure(of: EndToEnd, trees: Trees, device: Device, settings: Settings, *,
            progress: Callable[[str, str, float | None], None] | None = None,
            cancel: threading.Event | None = None) -> Verdict:
    """Return a verdict of one row. Raises InputError where the program fails without the best, or
    its metric means nothing, EnvironmentFault and Stopped.
    """
    return _Runs(of, trees, device, settings, progress or (lambda *_: None), cancel).verdict()


class _Runs:
    def __init__(self, of: EndToEnd, trees: Trees, device: Device, settings: Settings,
                 progress: Callable[[str, str, float | None], None],
                 cancel: threading.Event | None) -> None:
        self.of, self.device, self.settings = of, device, settings
        self._progress, self._cancel = progress, cancel
        self._folder = Path(settings.scratch) / "end-to-end"
        self._trees = {"incumbent": trees.incumbent, "candidate": trees.candidate}
        try:
            self._metric = units.resolve(of.metric) if of.metric is not None else None
        except ValueError as error:
            raise InputError(str(error), where="e2e_metric") from None
        self._place = Place(env={**settings.env, **device.visible_env}, python=settings.python,
                            warm=settings.warm_cache,
                            limits=replace(COMMAND_LIMITS, wall_s=of.timeout_s), cancel=cancel)

    def verdict(self) -> Verdict:
        began = time.monotonic()
        try:
            with undisturbed.over(self.device) as self._undisturbed:
                verdict = self._compared()
            verdict = replace(verdict, evidence=self._undisturbed.evidence())
        except Fault as fault:
            verdict = rejected(f"end to end: {fault}")
        finally:
            copies.remove(self._folder)
        return replace(verdict, device=self.device.name, alpha=SURE,
                       candidate_id=self.settings.candidate_id,
                       incumbent_tree=self.settings.incumbent_tree,
                       wall_s=round(time.monotonic() - began, 3))

    def _compared(self) -> Verdict:
        self._rehearse()
        sides = {name: Side(name, Path(tree), self._folder / name, self._place, self.of.frozen)
                 for name, tree in self._trees.items()}
        costs: dict[str, list[float]] = {name: [] for name in sides}
        for name, side in sides.items():
            for command in filter(None, (self.of.setup_command, self.of.build_command)):
                self._run(name, partial(side.run, command))
        for number in range(RUNS):
            for name in ORDER[::-1] if number % 2 else ORDER:
                done = sum(map(len, costs.values())) / (2 * RUNS)
                self._progress("timing", f"{CLASS}, run {number + 1} of {RUNS}", done)
                costs[name].append(self._run(name, partial(self._timed, name, sides)))
        return self._summed_up(costs)

    def _rehearse(self) -> None:
        """See whether a GPU works for the base inside namespaces; where not, confine nobody."""
        if self.device.kind == "cpu" or guard.unconfined():
            return
        side = Side("rehearsal", Path(self._trees["incumbent"]), self._folder / "rehearsal",
                    self._place, self.of.frozen)
        try:
            with self._lock() as held:
                for command in (self.of.setup_command, self.of.build_command, self.of.command):
                    if command:
                        side.run(command, lock=held)
        except Fault:
            self._place = replace(self._place, confined=False)

    def _timed(self, name: str, sides: Mapping[str, Side], *, lock: DeviceLock) -> float:
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
        except Fault as fault:
            if name == "candidate":
                raise
            raise InputError(f"fails without the best as well: {fault}", where="e2e_command",
                             fix="run it in a checkout of the project") from None

    def _cost(self, outcome: Outcome) -> float:
        if self._metric is None:
            return outcome.wall_s * 1e6
        said = outcome.stdout.decode(errors="replace")
        return self._metric.cost(value_in(said, self._metric.name))

    def _summed_up(self, costs: dict[str, list[float]]) -> Verdict:
        ratios = [math.log(before / after) for before, after in
                  zip(costs["incumbent"], costs["candidate"], strict=True)]
        value = stats.estimate(ratios, SURE)
        outcome: Ruled = "faster" if value.low > 0 else "slower" if value.high < 0 else "tie"
        latency = math.exp(stats.weighted_mean(list(map(math.log, costs["candidate"])), [1] * RUNS))
        before = math.exp(stats.weighted_mean(list(map(math.log, costs["incumbent"])), [1] * RUNS))
        row = Row(config_class=CLASS, correct=True, outcome=outcome, latency_us=latency,
                  incumbent_us=before, log_ratio=value.mean, low=value.low, high=value.high,
                  stderr=value.stderr, pairs=value.pairs)
        what = "its wall time" if self.of.metric is None else plain(self.of.metric.name, 80)
        return Verdict(valid=True, correct=True, rows=(row,), latency_us=latency,
                       latency_kind="reported", speedup=math.exp(value.mean),
                       speedup_low=math.exp(value.low), speedup_high=math.exp(value.high),
                       notes=(f"{RUNS} whole runs of each side in turn, by {what}",))

    @contextmanager
    def _lock(self) -> Iterator[DeviceLock]:
        with lock.acquire(*self.device.lock_names, shared_device=self.device.kind == "cpu",
                          cancel=self._cancel, on_wait=lambda text: self._progress(
                              "waiting", text, None)) as held:
            yield held
