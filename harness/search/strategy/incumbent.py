"""Keep or revert: hold the best trial so far."""

from __future__ import annotations

import math

from harness.search.space.space import Space, simplicity
from harness.search.trials.trials import Trial
from harness.verdict import TRUST


class Incumbent:
    """The best of the trials it has taken.

    Only correct trials count. A measured one outranks a reported one, then come predictions and
    trials without a latency. Among equals, the one that is faster by the margin wins. Within the
    margin the simpler configuration wins, if it is also within the margin of the fastest trial, so
    that small losses do not add up.
    """

    def __init__(self, space: Space, margin: float) -> None:
        self.best: Trial | None = None
        self._space = space
        self._margin = math.log1p(margin)
        self._fastest = -math.inf

    def take(self, trial: Trial) -> bool:
        """Compare one trial with the best; return whether it is the new best."""
        if not trial.correct or trial.withheld:
            return False
        trust = _trust(trial)
        if self.best is None or trust > _trust(self.best):
            self.best, self._fastest = trial, _score(trial)
            return True
        if trust < _trust(self.best) or trial.latency_us is None:
            return False
        score = _score(trial)
        self._fastest = max(self._fastest, score)
        if score - _score(self.best) < self._margin and not (
                self._fastest - score < self._margin and self._simpler(trial, self.best)):
            return False
        self.best = trial
        return True

    def _simpler(self, one: Trial, other: Trial) -> bool:
        return simplicity(self._space, one.config) < simplicity(self._space, other.config)


def _trust(trial: Trial) -> int:
    return -1 if trial.latency_kind is None else TRUST[trial.latency_kind]


def _score(trial: Trial) -> float:
    """Return the score within a rank: the paired ratio if there is one, else the latency."""
    if trial.log_ratio is not None:
        return trial.log_ratio
    return -math.inf if trial.latency_us is None else -math.log(trial.latency_us)
