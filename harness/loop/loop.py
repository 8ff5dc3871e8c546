"""Searches a kernel's knobs: keeps or reverts each trial. Times of trials are no verdicts."""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from harness.compile.place import Place, scratch_inside
from harness.devices import datasheets
from harness.devices.datasheets import CardModel
from harness.devices.device import Device
from harness.errors import Cancelled, InputError
from harness.formats.quantities import counted
from harness.formats.text import plain
from harness.isolation import device_lock
from harness.isolation.zygote_client import Zygote
from harness.loop.screening import Screening
from harness.roofline.predictor import SourcePredictor, card_for
from harness.search.keep_or_revert import KeepOrRevert, strategy_for
from harness.search.space.tunable_source import TunableSource
from harness.search.strategy import AskTell, PredictedOrder, Strategy, Sweep
from harness.search.trials import trial_log
from harness.search.trials.trial_log import Recorder
from harness.search.trials.trials import LoopResult, Screened, SearchJob, Trial, latency_kind
from harness.settings import Settings
from harness.tasks.target import Target
from harness.timing.plan import SCREEN
from harness.verdict import Config

MOST_REASON = 400
"""Most characters shown of the reason why the default failed."""


def loop(target: Target, job: SearchJob, device: Device, settings: Settings, *,
         on_trial: Callable[[Trial], None] | None = None,
         on_note: Callable[[str], None] | None = None,
         on_wait: Callable[[str], None] | None = None,
         cancel: threading.Event | None = None, zygote: Zygote | None = None) -> LoopResult:
    """Search the knobs of `job.tree`; return the best found, the default when nothing beats it.

    `on_trial` receives every new trial, `on_wait` what the loop waits for. With `job.record`, a
    loop that was ended at any moment resumes. With `settings.predict`, configurations that the card
    cannot launch are rejected, and planned ones are tried in order of predicted latency; where
    nothing can be measured, predictions guide the search. Raises InputError for a source without
    knobs or a default that does not run, and Refused while another process runs the same loop.
    """
    job.check()
    return _Loop(target, job, device, settings, cancel, zygote, on_wait).run(
        on_trial or (lambda trial: None), on_note or (lambda note: None))


def nothing_worked(trials: Sequence[Trial], default: Config) -> str:
    """Return the note that no trial is correct; "" if one is, or if there are none."""
    if not trials or any(trial.correct for trial in trials):
        return ""
    reasons = [trial.reason or trial.correctness for trial in trials if trial.config == default]
    return "no configuration worked" + "".join(
        f"; the default: {plain(' '.join(plain(reason).split()), MOST_REASON)}"
        for reason in reasons[:1])


class _Loop(KeepOrRevert):
    """One loop: what it searches, and its trials so far."""

    def __init__(self, target: Target, job: SearchJob, device: Device, settings: Settings,
                 cancel: threading.Event | None, zygote: Zygote | None,
                 on_wait: Callable[[str], None] | None) -> None:
        self.on_wait = on_wait
        source = TunableSource.read(Path(job.tree), target.source, language=target.language)
        self.forecast = Forecast.of(target, job, device, settings, source.configured, cancel)
        super().__init__(source, job, target.op, settings.incumbent_tree, cancel,
                         measured_only=self.forecast is not None)
        self.target, self.device, self.settings, self.zygote = target, device, settings, zygote

    def run(self, on_trial: Callable[[Trial], None], on_note: Callable[[str], None]) -> LoopResult:
        name = trial_log.key(self.target, self.job, self.device, self.settings)
        forecast = self.forecast
        subject = self.device if forecast is None else forecast.subject
        with Recorder(self.target, self.job, subject, self.source.knobs, name,
                      on_note) as self.recorder, \
                contextlib.closing(forecast.predictor) if forecast else contextlib.nullcontext():
            strategy = self._strategy()
            self.walk = AskTell(strategy if forecast is None else
                                PredictedOrder(strategy, forecast.latencies_us), self.space,
                                self.source.starts(self.job.only))
            earlier = self._replay(on_note)
            if len(earlier) < self.job.budget:
                with Screening(self.target, self.job, self.device, self.settings, self.source,
                               self.cancel, self.zygote,
                               None if forecast is None else forecast.predictor,
                               self.on_wait) as self.screening:
                    self.search(on_trial)
            for note in forecast.notes(self.trials) if forecast is not None else ():
                self.recorder.note(note)
            if note := nothing_worked(self.trials, self.space.default):
                self.recorder.note(note)
        return self.result(tuple(self.recorder.notes), earlier=len(earlier))

    def _strategy(self) -> Strategy:
        """Return a sweep, which compiles ahead, if the budget covers the space; else a search."""
        if swept := self.source.configurations(self.job.only, self.job.budget):
            return Sweep(swept)
        return strategy_for(self.space, self.job.seed,
                            self.recorder.history(self.space, self.kernel_id))

    def _replay(self, on_note: Callable[[str], None]) -> tuple[Trial, ...]:
        """Replay the recorded trials into the search; return those that lie in this space."""
        recorded = self.recorder.earlier
        earlier = tuple(trial for trial in recorded if self.space.holds(trial.config))
        if len(earlier) < len(recorded):
            on_note(f"{len(recorded) - len(earlier)} recorded trials lie outside this search "
                    "space: ignored")
        with contextlib.suppress(Cancelled):
            self.walk.replay(earlier if self.forecast is None else self.forecast.replayed(earlier),
                             self.is_cancelled)
        for trial in earlier:
            self.incumbent.take(trial)
        self.trials = list(earlier)
        if earlier:
            on_note(f"continuing after {counted(len(earlier), 'recorded trial')} "
                    "(--fresh starts again)")
        return earlier

    def next_config(self) -> Config | None:
        config = self.walk.next()
        if config is not None:
            left = self.job.budget - len(self.trials)
            self.screening.expect([config, *self.walk.planned()[:left - 1]])
        return config

    def screen(self, config: Config) -> Screened:
        return self.screening.measure(config)

    def learn(self, trial: Trial) -> None:
        self.walk.tell(trial if self.forecast is None else self.forecast.scored(trial))
        self.recorder.add(trial)


class Forecast:
    """Predicts the latencies of a loop's configurations on one card.

    No configuration is kept because of a prediction. `subject` is the device that the trials are
    recorded for: the predicted card where nothing can be measured.
    """

    def __init__(self, card: CardModel, predictor: SourcePredictor, subject: Device,
                 source_of: Callable[[Config], str | None]) -> None:
        self.card, self.predictor, self.subject = card, predictor, subject
        self._source_of = source_of
        self._first_us: float | None = None

    @classmethod
    def of(cls, target: Target, job: SearchJob, device: Device, settings: Settings,
           source_of: Callable[[Config], str | None],
           cancel: threading.Event | None) -> Forecast | None:
        """Return the forecast for the card `settings.predict`; None if none is named.

        Raises InputError if that card cannot be predicted, or this machine measures on another.
        """
        card = card_for(settings.predict, target.language)
        if card is None:
            return None
        is_measured = latency_kind(device, target.language) is not None
        if is_measured and datasheets.find(device.name) != card:
            raise InputError(f"this machine measures on {device.name}: predictions for {card.name} "
                             "are not used", where="--predict", fix="leave it out")
        place = Place(scratch=str(scratch_inside(Path(settings.scratch), "foresight")),
                      python=settings.python, env=settings.env, cancel=cancel,
                      yields=device_lock.turnstile() if device.kind == "cpu" else None)
        return cls(
            card, SourcePredictor(target, Path(job.tree), card, place, cold=SCREEN.cache == "cold"),
            device if is_measured else replace(device, name=card.name, arch=card.arch), source_of)

    def latencies_us(self, configs: Sequence[Config]) -> list[float]:
        """Return the predicted latencies (us) of configurations, infinity where there is none."""
        sources = [self._source_of(config) for config in configs]
        self.predictor.expect([source for source in sources if source is not None])
        latencies = [None if source is None else self.predictor.of(source).latency_us
                     for source in sources]
        return [math.inf if latency is None else latency for latency in latencies]

    def replayed(self, earlier: Sequence[Trial]) -> list[Trial]:
        """Return recorded trials with the scores for a search, and remember their predictions."""
        for trial in earlier:
            source = self._source_of(trial.config)
            if trial.latency_kind == "predicted" and trial.latency_us and source is not None:
                self.predictor.remember(source, trial.latency_us, trial.roofline_us)
        return [self.scored(trial) for trial in earlier]

    def scored(self, trial: Trial) -> Trial:
        """Return a trial with its score: for a prediction, the log ratio to the first one."""
        if trial.latency_kind != "predicted" or trial.latency_us is None:
            return trial
        self._first_us = self._first_us or trial.latency_us
        return replace(trial, latency_us=None, latency_kind=None,
                       log_ratio=math.log(self._first_us / trial.latency_us))

    def notes(self, trials: Sequence[Trial]) -> Iterator[str]:
        """Yield the loop's final notes for people."""
        if self.predictor.problem:
            yield (f"some configurations cannot be predicted for {self.card.name}: "
                   f"{self.predictor.problem}")
        predicted = [(trial.latency_us, trial.number, trial.config) for trial in trials
                     if trial.latency_kind == "predicted" and trial.latency_us is not None]
        if predicted:
            least_us, _, config = min(predicted, key=lambda entry: entry[:2])
            yield (f"predicted to be the fastest on {self.card.name}: {json.dumps(config)}, "
                   f"{least_us:.4g} us; nothing is kept on a prediction, measure it there")
