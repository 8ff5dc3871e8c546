"""Search a space with a Gaussian process and expected improvement, made for small budgets.

Expected improvement: Mockus (1975); Jones, Schonlau and Welch, Efficient Global Optimization
(1998).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from harness.search.bayesian.config_table import ConfigTable
from harness.search.bayesian.gaussian_process import Array
from harness.search.bayesian.surrogate import LEAST_OBSERVATIONS, Surrogate
from harness.search.space.tunable_source import Observation, Space
from harness.verdict import Config

DESIGNED = 10
"""Configurations tried before the model is used: far apart, so that each adds information."""
CHECKED = 4
"""With advice, only CHECKED of the DESIGNED are tried, to test if advice tells slow from fast."""
DRAWN = 50
"""Random draws; the one farthest from those chosen so far is next. Fewer leave more to chance."""
LIKELY = 8
"""How many of the next proposals `planned` announces; one more result seldom changes them."""
LEAST_SPREAD, LARGEST = 1e-3, 1e6
"""The smallest standard deviation of log ratios, and the largest log ratio."""
SCORED = 4_000
"""Configurations that the model scores for a proposal."""
MOST_IDLE, EXPLORED = 8, 8
"""After MOST_IDLE results without a gain, advice pauses until the next gain, and EXPLORED
configurations far apart are tried, but only once in a search."""
KEPT = 400
"""Most observations to predict from; of more, the best and the latest, half each."""
SLOW_QUANTILE, SLOW_LOG = 0.7, 0.5
"""A value above both this quantile and the best plus SLOW_LOG (1.6 times) counts as the larger."""
GAIN = 0.01
"""A smaller log ratio does not count as a new best: it does not end a stagnation."""
REQUIRED, REQUIRED_MOST = 0.07, 10
"""Improvement required of a proposal, in standard deviations per result without a gain, and how
many such results count at most."""
PATIENCE, SETTLING = 25, 3
"""After PATIENCE results without a gain, every SETTLING-th proposal aims at any improvement."""


class BayesianSearch:
    """Proposes configurations of a space, the default first, none twice.

    `tell` takes a score to maximise, a log ratio; None is a failure. `history` advises; misleading
    advice is detected and dropped. The same seed and scores give the same proposals.
    """

    def __init__(self, space: Space, seed: int, history: Sequence[Observation] = ()) -> None:
        self._rng = np.random.default_rng(seed)
        self.table = ConfigTable(space, self._rng)
        first = self.table.row(space.default)
        self._surrogate = Surrogate(self.table, history)
        self._rows: list[int] = []
        self._values: list[float] = []
        """Minus the score of each row of `_rows`, infinity for a failure."""
        self._asked: set[int] = set()
        self._leaders = np.zeros(0, int)
        self._has_explored = False
        self.advised = self._surrogate.has_advice
        """Whether there is advice, and it has not been found misleading."""
        design = self._far_apart(first)
        self._planned = [first, *design] if not self.advised else \
            [first, *self._surrogate.advised_rows(), *design[:CHECKED]]

    def ask(self) -> Config | None:
        """Return a configuration not asked before, or None when there is none left."""
        row = self._next()
        if row is None:
            return None
        self._asked.add(row)
        return self.table.config(row)

    def planned(self) -> list[Config]:
        """Return configurations that certainly or likely come next, to be compiled early."""
        rows = [row for row in self._planned if row not in self._asked] or \
            [int(row) for row in self._leaders[:LIKELY + 1] if row not in self._asked]
        return [self.table.config(row) for row in rows]

    def tell(self, config: Config, score: float | None) -> None:
        """Record the result of a configuration."""
        row = self.table.row(config)
        self._asked.add(row)
        self._rows.append(row)
        if score is None or not math.isfinite(score):
            self._values.append(math.inf)
        else:
            self._values.append(min(max(-score, -LARGEST), LARGEST))

    def _next(self) -> int | None:
        while self._planned:
            row = self._planned.pop(0)
            if row not in self._asked:
                return row
        self.table.grow()
        is_left = np.ones(len(self.table), bool)
        is_left[list(self._asked)] = False
        rest = np.flatnonzero(is_left)
        if not len(rest):
            return None
        values = np.array(self._values)
        if np.isfinite(values).sum() < 3:
            return int(self._rng.choice(rest))
        return self._most_promising(rest, values)

    def _most_promising(self, rest: Array, observed: Array) -> int:
        """Return the row of `rest` with the largest expected improvement."""
        worked = np.isfinite(observed)
        tried = np.array(self._rows)
        idle = since_last_gain(observed[worked])
        rows, values = predictive(tried[worked], observed[worked])
        spread = max(float(values.std()), LEAST_SPREAD)
        values = (values - values.mean()) / spread
        candidates = self._candidates(rest, rows[np.argsort(values, kind="stable")[:3]])
        best = int(rows[values.argmin()])
        advised = self._uses_advice(idle, best)
        process = self._surrogate.fit(rows, values, spread, advised=advised)
        if advised and len(observed) >= LEAST_OBSERVATIONS \
                and self._surrogate.is_misled(process, rows, values):
            self.advised = advised = False
            self._planned = self._far_apart(best)[:max(0, DESIGNED - len(rows))]
            process = self._surrogate.fit(rows, values, spread, advised=False)
        mean, deviation = self._surrogate.predict(process, candidates, spread, advised=advised)
        gain = expected_improvement(
            mean, deviation, required_value(values.min(), idle, len(rows)))
        if not worked.all():
            gain = gain * self._surrogate.works(process, candidates, tried, worked)
        order = np.argsort(-gain, kind="stable")
        self._leaders = candidates[order[:500]]
        return int(candidates[order[0]])

    def _uses_advice(self, idle: int, best: int) -> bool:
        """Return whether this proposal uses advice: more seldom the longer nothing improves.

        After MOST_IDLE results without a gain it also plans configurations far apart, once.
        """
        if self.advised and idle == MOST_IDLE and not self._has_explored:
            self._has_explored = True
            self._planned = self._far_apart(best)[:EXPLORED]
        return self.advised and idle < MOST_IDLE and (idle < 4 or idle % 2 == 0)

    def _candidates(self, rest: Array, best: Array) -> Array:
        """Return the rows to score: all of `rest`; if too many, likely ones and random others."""
        if len(rest) <= SCORED:
            return rest
        likely = np.concatenate([self._leaders, *(self.table.neighbours(int(row))
                                                  for row in best)])
        others = self._rng.choice(rest, SCORED - min(len(likely), SCORED // 2), replace=False)
        return np.intersect1d(np.concatenate([likely, others]), rest)

    def _far_apart(self, first: int) -> list[int]:
        """Return rows far from `first` and from each other."""
        places = self.table.places
        chosen = [first]
        nearest = np.abs(places - places[first]).sum(1)
        while len(chosen) < min(DESIGNED, len(self.table)):
            drawn = self._rng.choice(len(self.table), min(DRAWN, len(self.table)), replace=False)
            chosen.append(int(drawn[nearest[drawn].argmax()]))
            nearest = np.minimum(nearest, np.abs(places - places[chosen[-1]]).sum(1))
        return chosen[1:]


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Return how far each prediction is expected to fall below `best`."""
    z = (best - mean) / deviation
    gain: Array = deviation * (z * _normal_cdf(z) + np.exp(-z * z / 2.0)
                               / math.sqrt(2.0 * math.pi))
    return gain


def required_value(least: float, idle: int, count: int) -> float:
    """Return the value to beat, if the last `idle` of `count` observations brought no gain."""
    takes_any = idle > PATIENCE and count % SETTLING == 0
    return least - (0.0 if takes_any else REQUIRED * min(idle, REQUIRED_MOST))


def since_last_gain(values: Array) -> int:
    """Return how many observations follow the last that beat all before it by more than `GAIN`."""
    best, last = math.inf, 0
    for number, value in enumerate(values):
        if value < best - GAIN:
            best, last = float(value), number
    return len(values) - 1 - last


def predictive(rows: Array, values: Array) -> tuple[Array, Array]:
    """Return the observations to predict from; very slow values are lowered to a limit."""
    if len(rows) > KEPT:
        best = np.argsort(values[:-KEPT // 2], kind="stable")[: KEPT // 2]
        kept = np.concatenate([np.sort(best), np.arange(len(rows) - KEPT // 2, len(rows))])
        rows, values = rows[kept], values[kept]
    slow = max(float(np.quantile(values, SLOW_QUANTILE)), values.min() + SLOW_LOG)
    return rows, np.minimum(values, slow)


def _normal_cdf(z: Array) -> Array:
    """Return the normal distribution function (Abramowitz and Stegun 26.2.17, error 7.5e-8)."""
    t = 1.0 / (1.0 + 0.2316419 * np.abs(z))
    tail = np.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi) * t * (
        0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978
                                                                  + t * 1.330274429))))
    return np.where(z > 0.0, 1.0 - tail, tail)
