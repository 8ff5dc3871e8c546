"""Cost-model predictions in a loop: they order trials and guide a search that cannot measure.

No trial is kept on a prediction.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from harness.compile import kernel
from harness.devices import datasheets
from harness.devices.datasheets import CardModel
from harness.devices.device import Device
from harness.errors import InputError
from harness.isolation import device_lock
from harness.roofline.predictor import SourcePredictor, card_for
from harness.search.trials.trials import SearchJob, Trial, latency_kind
from harness.settings import Settings
from harness.target import Target
from harness.timing.plan import SCREEN
from harness.verdict import Config

SourceOf = Callable[[Config], str | None]
"""Returns the source with a configuration set, None for one that is refused."""


class Forecast:
    """Predicts a loop's configurations for one card. Use as a context manager.

    `subject` is the device that trials are recorded for: the predicted card where nothing can be
    measured.
    """

    def __init__(self, card: CardModel, predictor: SourcePredictor, subject: Device,
                 source_of: SourceOf) -> None:
        self.card, self.predictor, self.subject = card, predictor, subject
        self._source_of = source_of
        self._start_us: float | None = None

    @classmethod
    def of(cls, target: Target, job: SearchJob, device: Device, settings: Settings,
           source_of: SourceOf, cancel: threading.Event | None) -> Forecast | None:
        """Return the forecast for `settings.predict`, None where it is empty.

        Raises InputError for what cannot be predicted, and for a card other than the one that
        measures here.
        """
        card = card_for(settings.predict, target.language)
        if card is None:
            return None
        is_measured = latency_kind(device, target.language) is not None
        if is_measured and datasheets.find(device.name) != card:
            raise InputError(f"{device.name} measures here: predictions for {card.name} would not "
                             "be used", where="--predict", fix="leave it out")
        return cls(card, SourcePredictor(
            target, Path(job.tree), card,
            kernel.scratch_inside(Path(settings.scratch), "foresight"),
            cold=SCREEN.cache == "cold", python=settings.python, env=settings.env,
            yields=device_lock.turnstile() if device.kind == "cpu" else None, cancel=cancel),
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
        """Return a trial with its score for a search: a prediction as a ratio to the first one."""
        if trial.latency_kind != "predicted" or trial.latency_us is None:
            return trial
        self._start_us = self._start_us or trial.latency_us
        return replace(trial, latency_us=None, latency_kind=None,
                       log_ratio=math.log(self._start_us / trial.latency_us))

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

    def __enter__(self) -> Forecast:
        return self

    def __exit__(self, *_: object) -> None:
        self.predictor.close()
