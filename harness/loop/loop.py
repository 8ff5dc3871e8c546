"""`loop`: a keep/revert search over a kernel's knobs. Its trials are screening, not verdicts."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from harness.devices.device import Device
from harness.errors import Cancelled, InputError
from harness.formats.text import plain
from harness.isolation.zygote_client import Zygote
from harness.loop.forecast import Forecast
from harness.loop.screening import Screening
from harness.search.space.space import Config, Observation, Space
from harness.search.space.tunable_source import TunableSource
from harness.search.strategy.ask_tell import AskTell, Strategy
from harness.search.strategy.incumbent import Incumbent
from harness.search.strategy.predicted_order import PredictedOrder
from harness.search.trials.recorder import Recorder
from harness.search.trials.recorder import key as measured_key
from harness.search.trials.trials import MOST_TRIALS, LoopResult, Screened, SearchJob, Tag, Trial
from harness.settings import Settings
from harness.target import Target
from harness.timing.plan import SCREEN

MOST_TOLD = 400
"""Characters of the reason why the default failed."""


def loop(target: Target, job: SearchJob, device: Device, settings: Settings, *,
         on_trial: Callable[[Trial], None] | None = None,
         on_note: Callable[[str], None] | None = None,
         cancel: threading.Event | None = None, zygote: Zygote | None = None) -> LoopResult:
    """Search the knobs of `job.tree`; returns the best found, the default when nothing beat it.

    `on_trial` gets every trial that is made now. With `job.record` a loop that was ended at any
    moment goes on where it was. Where no configuration works the best is the default all the same,
    and a note says so. Raises InputError when the source has no knobs or neither compiles nor runs
    as it stands, Refused when another process is at the same loop.

    With `settings.predict` what that card cannot launch is rejected, and of what the search has
    planned the likely fastest is tried first; where nothing is measured, predictions lead it, and
    nothing but the default comes out of it.
    """
    if not 0 < job.budget <= MOST_TRIALS:
        raise InputError(f"a loop needs a budget of 1 to {MOST_TRIALS} trials")
    if job.seed < 0:
        raise InputError("a seed is a number from 0 on")
    return _Loop(target, job, device, settings, cancel, zygote).run(
        on_trial or (lambda trial: None), on_note or (lambda note: None))


def strategy_for(space: Space, seed: int, history: tuple[Observation, ...]) -> Strategy:
    """Return what proposes configurations; the history of the corpus is advice for it."""
    from harness.search.bayesian.bayesian_search import BayesianSearch

    return BayesianSearch(space, seed, history)


def nothing_worked(trials: Sequence[Trial], default: Config) -> str:
    """Return what is to be told if none of some trials is correct, "" if one is, or none is made.
    """
    if not trials or any(trial.correct for trial in trials):
        return ""
    told = [trial.reason or trial.correctness for trial in trials if trial.config == default]
    return "no configuration worked" + "".join(
        f"; the default: {plain(' '.join(plain(one).split()), MOST_TOLD)}" for one in told[:1])


def key(target: Target, job: SearchJob, device: Device, settings: Settings) -> str:
    """Return the short name of a loop, by which it is found again."""
    name = measured_key(target, job, device, settings)
    if not settings.predict:
        return name
    return hashlib.sha256(f"{name} {settings.predict}".encode()).hexdigest()[:len(name)]


class _Loop:
    """One loop: what it searches, and the trials it has so far."""

    def __init__(self, target: Target, job: SearchJob, device: Device, settings: Settings,
                 cancel: threading.Event | None, zygote: Zygote | None) -> None:
        self.target, self.job, self.device, self.settings = target, job, device, settings
        self.cancel, self.zygote = cancel, zygote
        self.source = TunableSource.read(Path(job.tree), target.source, language=target.language)
        self.space = self.source.space(job.only)
        self.kernel = self.source.kernel_id(target.op)
        self.ruling = Incumbent(self.space, SCREEN.margin)
        self.forecast = Forecast.of(target, job, device, settings, self.source.configured,
                                    cancel)
        self.trials: list[Trial] = []

    def run(self, on_trial: Callable[[Trial], None], on_note: Callable[[str], None]) -> LoopResult:
        name = key(self.target, self.job, self.device, self.settings)
        told = self.forecast
        subject = self.device if told is None else told.subject
        with Recorder(self.target, self.job, subject, self.source.knobs, name,
                      on_note) as recorder, \
                told or contextlib.nullcontext():
            strategy = strategy_for(self.space, self.job.seed,
                                    recorder.history(self.space, self.kernel))
            walk = AskTell(
                strategy if told is None else PredictedOrder(strategy, told.expected), self.space
            )
            earlier = tuple(trial for trial in recorder.earlier if self.space.holds(trial.config))
            if len(earlier) < len(recorder.earlier):
                on_note(f"{len(recorder.earlier) - len(earlier)} recorded trials are not of this "
                        "space: left out")
            with contextlib.suppress(Cancelled):
                walk.replay(earlier if told is None else told.replayed(earlier), self._cancelled)
            for trial in earlier:
                self._rule(trial)
            self.trials = list(earlier)
            if earlier:
                on_note(f"going on after {len(earlier)} recorded trials (--fresh starts anew)")
            if len(earlier) < self.job.budget:
                with Screening(self.target, self.job, self.device, self.settings, self.source,
                               self.cancel, self.zygote,
                            None if told is None else told.foresight) as screen:
                    self._search(screen, walk, recorder, on_trial)
            for note in told.notes(self.trials) if told is not None else ():
                recorder.note(note)
            if note := nothing_worked(self.trials, self.space.default):
                recorder.note(note)
        best = self.ruling.best
        config = best.config if best is not None else dict(self.space.default)
        return LoopResult(best=config, log_ratio=best.log_ratio if best is not None else None,
                          source=self.source.apply(config),
                          trials=tuple(self.trials), space_size=self.space.size,
                          earlier=len(earlier), notes=tuple(recorder.notes))

    def _search(self, screen: Screening, walk: AskTell, recorder: Recorder,
                on_trial: Callable[[Trial], None]) -> None:
        number = self.trials[-1].number + 1 if self.trials else 0
        while (left := self.job.budget - len(self.trials)) > 0 and not self._cancelled():
            try:
                config = walk.next()
                if config is None:
                    return
                screen.expect([config, *walk.planned()[:left - 1]])
                began = time.monotonic()
                screened = screen.measure(config)
            except Cancelled:
                return
            trial = self._ruled(number, config, screened, time.monotonic() - began)
            walk.tell(trial if self.forecast is None else self.forecast.scored(trial))
            recorder.add(trial)
            self.trials.append(trial)
            on_trial(trial)
            number += 1

    def _ruled(self, number: int, config: Config, screened: Screened, wall_s: float) -> Trial:
        """Make a trial of what was seen, and rule on it."""
        tags: dict[str, Tag] = {"PASS": "tried", "FAIL": "revert", "REJECTED": "rejected"}
        trial = Trial(
            number=number, config=config, tag=tags[screened.correctness],
            correctness=screened.correctness, candidate_id=self.source.candidate_id(
                self.settings.incumbent_tree, config),
            kernel_id=self.kernel, log_ratio=screened.log_ratio, latency_us=screened.latency_us,
            latency_kind=screened.latency_kind, roofline_us=screened.roofline_us,
            pct_of_roofline=screened.pct_of_roofline, reason=screened.reason,
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), wall_s=round(wall_s, 4))
        return replace(trial, tag="kept") if self._rule(trial) else trial

    def _rule(self, trial: Trial) -> bool:
        """Return whether a trial is the best now; beside predictions only a measured one can be."""
        return (self.forecast is None or trial.log_ratio is not None) and self.ruling.take(trial)

    def _cancelled(self) -> bool:
        return self.cancel is not None and self.cancel.is_set()
