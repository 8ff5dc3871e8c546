"""Keep or revert: which trial is the best so far."""

from __future__ import annotations

import math

from harness.search.space.space import Space, simplicity
from harness.search.trials.trials import Trial
from harness.verdict import TRUST


class Incumbent:
    """Takes trials one by one and holds the best.

    Correct comes first. What was measured outranks what was reported, that a prediction, and that
    a trial without a latency. Among equals, one that is faster by the margin wins; within the
    margin the simpler configuration does, as long as it is within the margin of the fastest too,
    so that small steps do not add up.
    """

    def __init__(self, space: Space, margin: float) -> None:
        self.best: Trial | None = None
        self._space = space
        self._margin = math.log1p(margin)
        self._fastest = -math.inf

    def take(self, trial: Trial) -> bool:
        """Judge one trial; returns whether it is the best now."""
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
    """Return what is compared within a rank: a paired ratio where there is one."""
    if trial.log_ratio is not None:
        return trial.log_ratio
    return -math.inf if trial.latency_us is None else -math.log(trial.latency_us)
