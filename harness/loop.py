"""`loop`: a keep/revert search over a kernel's knobs. Its trials are screening, not verdicts."""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from harness import knobs, stats
from harness.budget import Budget
from harness.build_c import BuildError
from harness.devices import Device
from harness.errors import InputError, Stopped
from harness.kernel import Kernel
from harness.lock import DeviceLock
from harness.peer import PeerDied, PeerError
from harness.plan import Plan
from harness.search.space import Config, of_knobs
from harness.search.strategy import CoordinateSearch
from harness.stage import Settings, Stage
from harness.target import Target
from harness.timing import Pairs, Tampered
from harness.zygote import Zygote

MORE = 3
"""Runners of a side that are kept starting while a GPU is busy with the last ones."""
SCREEN = Plan(looks=(1,), blocks=4, block_ns=750_000, warm_ns=1_500_000)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One configuration tried. `log_ratio` is against the starting source, a screening value."""

    number: int
    config: Config
    correct: bool
    log_ratio: float | None = None
    latency_us: float | None = None
    reason: str = ""
    kept: bool = False
    wall_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class LoopResult:
    """Where a loop ended: the best configuration and the whole source with it set."""

    best: Config
    log_ratio: float | None
    source: str
    trials: tuple[Trial, ...]
    space_size: int


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to search: a tree, a budget of trials, a seed, and the knobs that may move (all)."""

    tree: str
    reference: str
    budget: int = 24
    seed: int = 0
    only: tuple[str, ...] = ()


def loop(target: Target, job: Job, device: Device, settings: Settings, *,
         on_trial: Callable[[Trial], None] | None = None,
         cancel: threading.Event | None = None, zygote: Zygote | None = None) -> LoopResult:
    """Search the knobs of `job.tree`; returns the best found, the default when nothing beat it.

    Raises InputError when the source has no knobs or its default does not work.
    """
    if job.budget < 1:
        raise InputError("a loop needs a budget of at least one trial")
    with _Screen(target, job, device, settings, cancel, zygote) as screen:
        return screen.search(on_trial or (lambda trial: None))


class _Screen:
    """The bench of one loop: a stage, an oracle and its cases, shared by all trials."""

    def __init__(self, target: Target, job: Job, device: Device, settings: Settings,
                 cancel: threading.Event | None, zygote: Zygote | None) -> None:
        self.job, self.cancel = job, cancel
        self.source = knobs.read(Path(job.tree) / target.source)
        self.space = of_knobs(knobs.find(self.source, language=target.language,
                                         where=target.source), job.only)
        self.stage = Stage(target, device, settings, cancel, zygote)
        self.target = self.stage.target
        self.oracle = self.stage.oracle(Path(job.reference), None)
        self.budget = Budget(self.stage, self.oracle, Path(job.reference))

    def __enter__(self) -> _Screen:
        return self

    def __exit__(self, *_: object) -> None:
        self.stage.close()
        self.oracle.close()

    def search(self, on_trial: Callable[[Trial], None]) -> LoopResult:
        with self.stage.working():
            self.cases = [self.oracle.make(c, "normal") for c in self.target.classes]
        try:
            self.incumbent = self.stage.make(Path(self.job.tree), "start")
        except BuildError as error:
            raise InputError(f"does not compile: {error.what}",
                             where=self.target.source) from None
        self.stage.runners.expect(self.incumbent, 1)
        strategy = CoordinateSearch(self.space, self.job.seed)
        best: Trial | None = None
        trials: list[Trial] = []
        while len(trials) < self.job.budget and not self._cancelled():
            config = strategy.ask()
            if config is None:
                break
            try:
                trial = self._trial(len(trials), config)
            except Stopped:
                break
            gain = -math.inf if trial.log_ratio is None else trial.log_ratio
            threshold = best.log_ratio + math.log1p(SCREEN.margin) if best is not None \
                and best.log_ratio is not None else -math.inf
            if gain > threshold:
                trial = replace(trial, kept=True)
                best = trial
            strategy.tell(config, trial.log_ratio)
            trials.append(trial)
            on_trial(trial)
        config = best.config if best is not None else dict(self.space.default)
        return LoopResult(best=config, log_ratio=best.log_ratio if best is not None else None,
                          source=knobs.apply(self.source, config, language=self.target.language),
                          trials=tuple(trials), space_size=self.space.size)

    def _cancelled(self) -> bool:
        return self.cancel is not None and self.cancel.is_set()

    def _trial(self, number: int, config: Config) -> Trial:
        began = time.monotonic()
        trial = Trial(number=number, config=config, correct=False)
        try:
            log_ratio, latency_us = self._measure(config)
            trial = replace(trial, correct=True, log_ratio=log_ratio,
                                            latency_us=latency_us)
        except (BuildError, PeerError, PeerDied, Tampered, _Wrong) as error:
            trial = replace(trial, reason=str(error))
        return replace(trial, wall_s=round(time.monotonic() - began, 4))

    def _measure(self, config: Config) -> tuple[float | None, float | None]:
        """Build, check and screen one configuration; raises for every way in which it fails."""
        tree = Path(self.stage.settings.scratch) / "trial"
        if not tree.exists():
            shutil.copytree(self.job.tree, tree, symlinks=True,
                            ignore=shutil.ignore_patterns(".git"))
        (tree / self.target.source).write_bytes(
            knobs.apply(self.source, config, language=self.target.language).encode())
        candidate = self.stage.make(tree, "trial")
        with self.stage.working() as held:
            self._check(candidate, held)
            if not self.stage.measurable:
                return None, None
            with self.stage.measuring(held) as owned:
                return self._time(candidate, owned)

    def _check(self, candidate: Kernel, held: DeviceLock | None) -> None:
        with self.stage.runners.start(candidate, lock=held, yields=self.stage.yields,
                                      refill=MORE) as runner, self.budget:
            for case in self.cases:
                answer = runner.ask("call", case=case.id, tensors=case.tensors)
                errors = self.oracle.judge(case, answer.get("outputs"))
                judged = self.budget.judge(case, errors, candidate, held)
                if judged is None or not judged.right:
                    raise _Wrong(f"wrong result on class {case.config_class}")

    def _time(self, candidate: Kernel, held: DeviceLock) -> tuple[float, float]:
        sides = {"candidate": candidate, "incumbent": self.incumbent}
        plan = self.stage.fitted(SCREEN)
        timings = Pairs(plan, self.cases, lambda order: self.stage.runners.start_all(
            [sides[side] for side in order], lock=held, refill=MORE),
            alone=self.stage.on_cpu and not self.stage.in_process,
            quiet=any(side.tunes_itself for side in sides.values()),
            end=None if self.stage.on_cpu else self.stage.runners.end,
            cancel=self.cancel).run()
        weights = [c.weight for c in self.target.classes]
        by_class = {t.config_class: t for t in timings}
        ordered = [by_class[c.name] for c in self.target.classes]
        latency = math.exp(stats.weighted_mean([math.log(t.candidate_us) for t in ordered],
                                               weights))
        ratio = stats.weighted_mean([median(t.log_ratios) for t in ordered], weights)
        return ratio, latency


class _Wrong(Exception):
    """A trial that ran and computed something else."""
