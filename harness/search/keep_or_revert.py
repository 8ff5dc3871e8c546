"""Keep-or-revert search over a source's knobs, independent of how trials are screened."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from harness.errors import Cancelled
from harness.search.space.tunable_source import Observation, Space, TunableSource
from harness.search.strategy import Incumbent, Strategy
from harness.search.trials.trials import TAGS, LoopResult, Screened, SearchJob, Trial
from harness.timing.plan import SCREEN
from harness.verdict import Config


def strategy_for(space: Space, seed: int, history: tuple[Observation, ...] = ()) -> Strategy:
    """Return the strategy that proposes configurations; `history` from the corpus advises it."""
    from harness.search.bayesian.bayesian_search import BayesianSearch  # imports numpy

    return BayesianSearch(space, seed, history)


class KeepOrRevert:
    """The trials of one search and their best; subclasses add `next_config`, `screen`, `learn`."""

    def __init__(self, source: TunableSource, job: SearchJob, op: str, incumbent_tree: str,
                 cancel: threading.Event | None, *, measured_only: bool = False) -> None:
        self.source, self.job, self.cancel = source, job, cancel
        self.space = source.space(job.only)
        self.kernel_id, self._incumbent_tree = source.kernel_id(op), incumbent_tree
        self.incumbent = Incumbent(self.space, SCREEN.margin, measured_only=measured_only)
        self.trials: list[Trial] = []

    def next_config(self) -> Config | None:
        """Return the configuration to try next, None at the end."""
        raise NotImplementedError

    def screen(self, config: Config) -> Screened:
        raise NotImplementedError

    def learn(self, trial: Trial) -> None:
        """Tell the strategy a trial's result and record it, before it is added to `trials`."""
        raise NotImplementedError

    def search(self, on_trial: Callable[[Trial], None]) -> None:
        """Try configurations until the budget is spent, none is left, or it is cancelled."""
        with contextlib.suppress(Cancelled):
            while len(self.trials) < self.job.budget and not self.is_cancelled():
                config = self.next_config()
                if config is None:
                    return
                began = time.monotonic()
                trial = self._trial(config, self.screen(config), began)
                self.learn(trial)
                self.trials.append(trial)
                on_trial(trial)

    def result(self, notes: tuple[str, ...], **fields: Any) -> LoopResult:
        """Return the best configuration, the default if nothing beats it, and all trials."""
        best = self.incumbent.best
        config = dict(self.space.default) if best is None else best.config
        return LoopResult(
            best=config, log_ratio=None if best is None else best.log_ratio,
            source=self.source.apply(config), trials=tuple(self.trials),
            space_size=self.space.size, notes=notes, **fields)

    def is_cancelled(self) -> bool:
        return self.cancel is not None and self.cancel.is_set()

    def _trial(self, config: Config, screened: Screened, began: float) -> Trial:
        """Return a screened configuration as a trial, kept or not."""
        trial = Trial(
            **vars(screened), number=self.trials[-1].number + 1 if self.trials else 0,
            config=config, tag=TAGS[screened.correctness], kernel_id=self.kernel_id,
            candidate_id=self.source.candidate_id(self._incumbent_tree, config),
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            wall_s=round(time.monotonic() - began, 4))
        return replace(trial, tag="kept") if self.incumbent.take(trial) else trial
