"""Search a kernel's knobs, keep or revert. Trials are screening values, not verdicts."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from harness.devices.device import Device
from harness.errors import Cancelled
from harness.formats.quantities import counted
from harness.formats.text import plain
from harness.isolation.zygote_client import Zygote
from harness.loop.forecast import Forecast
from harness.loop.screening import Screening
from harness.search.space.space import Observation, Space
from harness.search.space.tunable_source import TunableSource
from harness.search.strategy.ask_tell import AskTell, Strategy
from harness.search.strategy.incumbent import Incumbent
from harness.search.strategy.predicted_order import PredictedOrder
from harness.search.trials.recorder import Recorder
from harness.search.trials.recorder import key as measured_key
from harness.search.trials.trials import TAGS, LoopResult, Screened, SearchJob, Trial
from harness.settings import Settings
from harness.target import Target
from harness.timing.plan import SCREEN
from harness.trial_fields import Config

MOST_REASON = 400
"""Characters of the reason why the default failed."""


def loop(target: Target, job: SearchJob, device: Device, settings: Settings, *,
         on_trial: Callable[[Trial], None] | None = None,
         on_note: Callable[[str], None] | None = None,
         cancel: threading.Event | None = None, zygote: Zygote | None = None) -> LoopResult:
    """Search the knobs of `job.tree`; return the best found, the default when nothing beats it.

    `on_trial` receives every new trial. With `job.record`, a loop that was ended at any moment
    resumes. When no configuration works, the best is still the default, and a note says so. Raises
    InputError when the source has no knobs, does not compile or does not run with the default, and
    Refused while another process runs the same loop.

    With `settings.predict`, configurations that the card cannot launch are rejected, and those that
    the search has planned are tried in order of their predicted latency. Where nothing can be
    measured, predictions guide the search, and it returns the default.
    """
    job.check()
    return _Loop(target, job, device, settings, cancel, zygote).run(
        on_trial or (lambda trial: None), on_note or (lambda note: None))


def strategy_for(space: Space, seed: int, history: tuple[Observation, ...]) -> Strategy:
    """Return what proposes configurations; the corpus's history advises it."""
    from harness.search.bayesian.bayesian_search import BayesianSearch

    return BayesianSearch(space, seed, history)


def nothing_worked(trials: Sequence[Trial], default: Config) -> str:
    """Return the note that no trial is correct; "" if one is, or if there are none."""
    if not trials or any(trial.correct for trial in trials):
        return ""
    reasons = [trial.reason or trial.correctness for trial in trials if trial.config == default]
    return "no configuration worked" + "".join(
        f"; the default: {plain(' '.join(plain(reason).split()), MOST_REASON)}"
        for reason in reasons[:1])


def key(target: Target, job: SearchJob, device: Device, settings: Settings) -> str:
    """Return the short name by which a loop's record is found again."""
    name = measured_key(target, job, device, settings)
    if not settings.predict:
        return name
    return hashlib.sha256(f"{name} {settings.predict}".encode()).hexdigest()[:len(name)]


class _Loop:
    """One loop: what it searches, and its trials so far."""

    def __init__(self, target: Target, job: SearchJob, device: Device, settings: Settings,
                 cancel: threading.Event | None, zygote: Zygote | None) -> None:
        self.target, self.job, self.device, self.settings = target, job, device, settings
        self.cancel, self.zygote = cancel, zygote
        self.source = TunableSource.read(Path(job.tree), target.source, language=target.language)
        self.space = self.source.space(job.only)
        self.kernel = self.source.kernel_id(target.op)
        self.incumbent = Incumbent(self.space, SCREEN.margin)
        self.forecast = Forecast.of(target, job, device, settings, self.source.configured, cancel)
        self.trials: list[Trial] = []

    def run(self, on_trial: Callable[[Trial], None], on_note: Callable[[str], None]) -> LoopResult:
        name = key(self.target, self.job, self.device, self.settings)
        forecast = self.forecast
        subject = self.device if forecast is None else forecast.subject
        with Recorder(self.target, self.job, subject, self.source.knobs, name,
                      on_note) as recorder, forecast or contextlib.nullcontext():
            walk = AskTell(self._strategy(recorder), self.space)
            earlier = self._replay(recorder, walk, on_note)
            if len(earlier) < self.job.budget:
                with Screening(self.target, self.job, self.device, self.settings, self.source,
                               self.cancel, self.zygote,
                               None if forecast is None else forecast.predictor) as screening:
                    self._search(screening, walk, recorder, on_trial)
            for note in forecast.notes(self.trials) if forecast is not None else ():
                recorder.note(note)
            if note := nothing_worked(self.trials, self.space.default):
                recorder.note(note)
        best = self.incumbent.best
        config = best.config if best is not None else dict(self.space.default)
        return LoopResult(best=config, log_ratio=best.log_ratio if best is not None else None,
                          source=self.source.apply(config),
                          trials=tuple(self.trials), space_size=self.space.size,
                          earlier=len(earlier), notes=tuple(recorder.notes))

    def _strategy(self, recorder: Recorder) -> Strategy:
        strategy = strategy_for(self.space, self.job.seed,
                                recorder.history(self.space, self.kernel))
        return strategy if self.forecast is None \
            else PredictedOrder(strategy, self.forecast.latencies_us)

    def _replay(self, recorder: Recorder, walk: AskTell,
                on_note: Callable[[str], None]) -> tuple[Trial, ...]:
        """Bring the search to where its record ends; return the recorded trials of this space."""
        earlier = tuple(trial for trial in recorder.earlier if self.space.holds(trial.config))
        if len(earlier) < len(recorder.earlier):
            on_note(f"{len(recorder.earlier) - len(earlier)} recorded trials are not of this "
                    "space: left out")
        with contextlib.suppress(Cancelled):
            walk.replay(earlier if self.forecast is None else self.forecast.replayed(earlier),
                        self._cancelled)
        for trial in earlier:
            self._take(trial)
        self.trials = list(earlier)
        if earlier:
            on_note(f"continuing after {counted(len(earlier), 'recorded trial')} "
                    "(--fresh starts again)")
        return earlier

    def _search(self, screening: Screening, walk: AskTell, recorder: Recorder,
                on_trial: Callable[[Trial], None]) -> None:
        number = self.trials[-1].number + 1 if self.trials else 0
        while (left := self.job.budget - len(self.trials)) > 0 and not self._cancelled():
            try:
                config = walk.next()
                if config is None:
                    return
                screening.expect([config, *walk.planned()[:left - 1]])
                began = time.monotonic()
                screened = screening.measure(config)
            except Cancelled:
                return
            trial = self._trial(number, config, screened, time.monotonic() - began)
            walk.tell(trial if self.forecast is None else self.forecast.scored(trial))
            recorder.add(trial)
            self.trials.append(trial)
            on_trial(trial)
            number += 1

    def _trial(self, number: int, config: Config, screened: Screened, wall_s: float) -> Trial:
        """Return a screened configuration as a trial, kept or not."""
        trial = Trial(
            number=number, config=config, tag=TAGS[screened.correctness],
            correctness=screened.correctness, candidate_id=self.source.candidate_id(
                self.settings.incumbent_tree, config),
            kernel_id=self.kernel, log_ratio=screened.log_ratio, latency_us=screened.latency_us,
            latency_kind=screened.latency_kind, roofline_us=screened.roofline_us,
            pct_of_roofline=screened.pct_of_roofline, reason=screened.reason,
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), wall_s=round(wall_s, 4))
        return replace(trial, tag="kept") if self._take(trial) else trial

    def _take(self, trial: Trial) -> bool:
        """Return whether a trial is the new best; with predictions only a measured one can be."""
        return (self.forecast is None or trial.log_ratio is not None) and self.incumbent.take(trial)

    def _cancelled(self) -> bool:
        return self.cancel is not None and self.cancel.is_set()
