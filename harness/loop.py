"""`loop`: a keep/revert search over a kernel's knobs. Its trials are screening, not verdicts."""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median

import msgspec

from harness import kernel, knobs, lock, stats
from harness.build_c import BuildError
from harness.devices import Device
from harness.errors import InputError, Stopped
from harness.evaluate import Settings, limits_for
from harness.kernel import Kernel
from harness.oracle import Oracle
from harness.peer import PeerDied, PeerError
from harness.runners import Runners, starts_ahead
from harness.search.space import Config, of_knobs
from harness.search.strategy import CoordinateSearch
from harness.target import Target
from harness.timing import Pairs, Plan, Tampered

SCREEN = Plan(looks=(1,), blocks=4, block_ns=1_500_000, warm_ns=1_500_000)
SCREEN_GPU = Plan(looks=(1,), blocks=4, block_ns=3_000_000, warm_ns=5_000_000)


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration tried. `log_ratio` is against the starting source, a screening value."""

    number: int
    config: Config
    correct: bool
    log_ratio: float | None = None
    latency_us: float | None = None
    reason: str = ""
    kept: bool = False
    wall_s: float = 0.0


class LoopResult(msgspec.Struct, frozen=True, kw_only=True):
    """Where a loop ended: the best configuration and the whole source with it set."""

    best: Config
    log_ratio: float | None
    source: str
    trials: tuple[Trial, ...]
    space_size: int


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to search: a tree, a budget of trials, a seed, and the knobs that may move (all)."""

    tree: str
    reference: str
    budget: int = 24
    seed: int = 0
    only: tuple[str, ...] = ()


def loop(target: Target, job: Job, device: Device, settings: Settings, *,
         on_trial: Callable[[Trial], None] | None = None,
         cancel: threading.Event | None = None) -> LoopResult:
    """Search the knobs of `job.tree`; returns the best found, the default when nothing beat it.

    Raises InputError when the source has no knobs or its default does not work.
    """
    if job.budget < 1:
        raise InputError("a loop needs a budget of at least one trial")
    with _Screen(target, job, device, settings, cancel) as screen:
        return screen.search(on_trial or (lambda trial: None))


class _Screen:
    """The bench of one loop: an oracle and its cases, shared by all trials."""

    def __init__(self, target: Target, job: Job, device: Device, settings: Settings,
                 cancel: threading.Event | None) -> None:
        self.target, self.job, self.device, self.settings = target, job, device, settings
        self.cancel = cancel
        self.on_cpu = device.kind == "cpu"
        self.measurable = not (self.on_cpu and target.language == "triton")
        self.place = kernel.place_on(device, target.language, scratch=settings.scratch,
                                     python=settings.python, env=settings.env)
        if self.place.interpret:
            self.target = target.interpretable()
        self.yields = lock.turnstile() if self.on_cpu else None
        self.runners = Runners(limits_for(target, device, settings), yields=self.yields,
                               ahead=starts_ahead(self.place, target.language), cancel=cancel)
        self.source = knobs.read(Path(job.tree) / target.source)
        self.space = of_knobs(knobs.find(self.source, language=target.language,
                                         where=target.source), job.only)
        self.oracle = Oracle(self.target, Path(job.reference), Path(settings.scratch) / "io",
                             self.place, yields=self.yields, cancel=cancel)

    def __enter__(self) -> _Screen:
        return self

    def __exit__(self, *_: object) -> None:
        self.runners.close()
        self.oracle.close()

    def search(self, on_trial: Callable[[Trial], None]) -> LoopResult:
        with self._device():
            self.cases = [self.oracle.make(c, "normal") for c in self.target.classes]
        try:
            self.incumbent = kernel.make(self.target, Path(self.job.tree), "start", self.place,
                                         yields=self.yields, cancel=self.cancel)
        except BuildError as error:
            raise InputError(f"does not compile: {error.what}",
                             where=self.target.source) from None
        self.runners.expect(self.incumbent, 1)
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
                trial = msgspec.structs.replace(trial, kept=True)
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
            trial = msgspec.structs.replace(trial, correct=True, log_ratio=log_ratio,
                                            latency_us=latency_us)
        except (BuildError, PeerError, PeerDied, Tampered, _Wrong) as error:
            trial = msgspec.structs.replace(trial, reason=str(error))
        return msgspec.structs.replace(trial, wall_s=round(time.monotonic() - began, 4))

    def _measure(self, config: Config) -> tuple[float | None, float | None]:
        """Build, check and screen one configuration; raises for every way in which it fails."""
        tree = Path(self.settings.scratch) / "trial"
        if not tree.exists():
            shutil.copytree(self.job.tree, tree, symlinks=True,
                            ignore=shutil.ignore_patterns(".git"))
        (tree / self.target.source).write_bytes(
            knobs.apply(self.source, config, language=self.target.language).encode())
        candidate = kernel.make(self.target, tree, "trial", self.place, yields=self.yields,
                                cancel=self.cancel)
        if self.on_cpu:
            self._check(candidate, None)
            if not self.measurable:
                return None, None
            with lock.acquire("cpu", shared_device=True, cancel=self.cancel) as held:
                return self._time(candidate, held)
        with self._device() as held:
            assert held is not None
            self._check(candidate, held)
            return self._time(candidate, held)

    def _device(self) -> AbstractContextManager[lock.DeviceLock | None]:
        """Take the lock on a GPU; whatever works on the CPU yields to measurements instead."""
        if self.on_cpu:
            return nullcontext()
        return lock.acquire(lock.name_of(self.device.kind, self.device.uuid), cancel=self.cancel)

    def _check(self, candidate: Kernel, held: lock.DeviceLock | None) -> None:
        with self.runners.start(candidate, lock=held, yields=self.yields,
                                refill=True) as runner:
            for case in self.cases:
                answer = runner.ask("call", case=case.id, tensors=case.tensors)
                errors = self.oracle.judge(case, answer.get("outputs"))
                tolerance = self.target.tolerance_of(self.target.config_class(case.config_class))
                if not errors.within(tolerance):
                    raise _Wrong(f"wrong result on class {case.config_class}")

    def _time(self, candidate: Kernel, held: lock.DeviceLock) -> tuple[float, float]:
        sides = {"candidate": candidate, "incumbent": self.incumbent}
        plan = SCREEN if self.on_cpu else SCREEN_GPU
        timings = Pairs(plan, self.cases, lambda order: self.runners.start_all(
            [sides[side] for side in order], lock=held, refill=True), alone=self.on_cpu,
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
