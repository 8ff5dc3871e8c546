"""The predictions of one loop: what they order, what a search is told, what a person is.

They lead where nothing is measured, and say what to try first where something is. No trial is kept
for one.
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
from harness.roofline.predictor import Foresight, card_for
from harness.search.space.space import Config
from harness.search.trials.trials import SearchJob, Trial, latency_kind
from harness.settings import Settings
from harness.target import Target
from harness.timing.plan import SCREEN

SourceOf = Callable[[Config], str | None]
"""Returns the source with a configuration set, None for one that cannot be."""


class Forecast:
    """What a loop knows of a card beforehand. Use as a context manager."""

    def __init__(self, card: CardModel, foresight: Foresight, subject: Device,
                 source_of: SourceOf) -> None:
        self.card, self.foresight, self.subject = card, foresight, subject
        self._source_of = source_of
        self._start_us: float | None = None

    @classmethod
    def of(cls, target: Target, job: SearchJob, device: Device, settings: Settings,
           source_of: SourceOf, cancel: threading.Event | None) -> Forecast | None:
        """Return the forecast that the settings ask for, if they do.

        Raises InputError for what cannot be predicted, and for another card than the one here.

        Where nothing is measured its `subject`, of which trials tell, is the card itself.
        """
        card = card_for(settings.predict, target.language)
        if card is None:
            return None
        measured = latency_kind(device, target.language) is not None
        if measured and datasheets.find(device.name) != card:
            raise InputError(f"{device.name} measures here: what {card.name} would do decides "
                             "nothing of it", where="--predict", fix="leave it out")
        return cls(card, Foresight(
            target, Path(job.tree), card,
            kernel.scratch_inside(Path(settings.scratch), "foresight"),
            cold=SCREEN.cache == "cold", python=settings.python, env=settings.env,
            yields=device_lock.turnstile() if device.kind == "cpu" else None, cancel=cancel),
            device if measured else replace(device, name=card.name, arch=card.arch), source_of)

    def expected(self, configs: Sequence[Config]) -> list[float]:
        """Return the predicted latencies (us) of configurations, infinity where there is none."""
        sources = [self._source_of(one) for one in configs]
        self.foresight.expect([one for one in sources if one is not None])
        told = [None if one is None else self.foresight.of(one).latency_us for one in sources]
        return [math.inf if one is None else one for one in told]

    def replayed(self, earlier: Sequence[Trial]) -> list[Trial]:
        """Return recorded trials as a search is told of them; what they predict is remembered."""
        for trial in earlier:
            source = self._source_of(trial.config)
            if trial.latency_kind == "predicted" and trial.latency_us and source is not None:
                self.foresight.remember(source, trial.latency_us, trial.roofline_us)
        return [self.scored(trial) for trial in earlier]

    def scored(self, trial: Trial) -> Trial:
        """Return a trial as a search is told of it: of a prediction, the ratio to the first one."""
        if trial.latency_kind != "predicted" or trial.latency_us is None:
            return trial
        self._start_us = self._start_us or trial.latency_us
        return replace(trial, latency_us=None, latency_kind=None,
                       log_ratio=math.log(self._start_us / trial.latency_us))

    def notes(self, trials: Sequence[Trial]) -> Iterator[str]:
        """Yield what a person is to be told at the end."""
        if self.foresight.problem:
            yield f"not all can be predicted for {self.card.name}: {self.foresight.problem}"
        by = [(trial.latency_us, trial.number, trial.config) for trial in trials
              if trial.latency_kind == "predicted" and trial.latency_us is not None]
        if by:
            least_us, _, config = min(by, key=lambda one: one[:2])
            yield (f"predicted to be the fastest on {self.card.name}: {json.dumps(config)}, "
                   f"{least_us:.4g} us; nothing is kept on a prediction, measure it there")

    def __enter__(self) -> Forecast:
        return self

    def __exit__(self, *_: object) -> None:
        self.foresight.close()
