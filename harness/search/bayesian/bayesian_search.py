"""The search: a Gaussian process with expected improvement, made for small budgets.

Expected improvement: Mockus (1975); Jones, Schonlau and Welch, Efficient Global Optimization
(1998). It asks for more than any improvement the longer none has come, so that it leaves plateaus.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harness.search.bayesian import transfer_prior
from harness.search.bayesian.config_table import ConfigTable
from harness.search.bayesian.gaussian_process import Array, GaussianProcess, Hyperparameters, Points
from harness.search.space.space import Config, Observation, Space

DESIGNED = 10
"""Configurations asked for before the model is: far apart, so that each says something new."""
CHECKED = 4
"""How many of them are asked for beside advice, to see whether it tells slow from fast."""
DRAWN = 50
"""How many a next one of those is the farthest of: fewer leave more to chance."""
LIKELY = 8
"""Those next in the order of expected improvement: what is told now seldom turns it over."""
LEARNT = 120
"""Observations that hyperparameters are learnt from."""
KEPT = 400
"""Observations that predict: of more, the best half and the latest half."""
LEAST_SPREAD, LARGEST = 1e-3, 1e6
"""Log ratios are no more exact, and no larger."""
SCORED = 4_000
"""Configurations that the model looks at for a proposal."""
SLOW_QUANTILE, SLOW_LOG = 0.7, 0.5
"""What is slower than most seen, and than 1.6 times the best, counts as just that slow."""
GAIN = 0.01
"""Log ratio below which a new best is none: it ends no stagnation."""
RESTLESS, RESTLESS_MOST = 0.07, 10
"""Deviations more that are asked of an improvement for each proposal without one."""
PATIENCE, SETTLING = 25, 3
"""After so many proposals without one, every third asks for any improvement again: the last
percent is near the best."""
SHARPNESS = 2.0
PRIOR_SPREAD = 0.5
"""Standard deviation of how much a source's log ratios are stretched here."""
DOUBTED, LOOKED = 8, 8
"""Proposals without a gain after which advice is no longer asked, and how many far apart ones come
then: what was advised says little of the rest.
"""
TOLD, EVIDENCE, AGREEMENT = 8, 1.0, 0.3
"""With so many observations, advice is dropped that makes them less likely by such a log ratio, or
of whose log ratios less than such a share is seen here."""


class BayesianSearch:
    """Proposes configurations of a space, the default first, none twice.

    `tell` takes a score to maximise, a log ratio, None for a failure. `history` advises: where it
    misleads it is noticed and dropped. The same seed and the same scores give the same proposals.
    """

    def __init__(self, space: Space, seed: int, history: Sequence[Observation] = ()) -> None:
        self._rng = np.random.default_rng(seed)
        self.table = ConfigTable(space, self._rng)
        first = self.table.row(space.default)
        self._advice = transfer_prior.columns(self.table, history)
        self._rows: list[int] = []
        self._spent: list[float] = []
        self._asked: set[int] = set()
        self._by = Hyperparameters(self.table.encoding.scales)
        self._learnt = 0
        self._leaders = np.zeros(0, int)
        self._looked_around = False
        self.advised = self._advice.shape[1] > 0
        """Whether the history still counts."""
        self._planned = [first, *self._design(first)] if not self.advised else \
            [first, *self._advised(), *self._design(first)[:CHECKED]]

    def ask(self) -> Config | None:
        """Return a configuration not asked before, or None when there is none left."""
        row = self._next()
        if row is None:
            return None
        self._asked.add(row)
        return self.table.config(row)

    def planned(self) -> list[Config]:
        """Return what it will ask for next whatever it is told, or else what it is likely to: to be
        made ready beforehand.
        """
        rows = [row for row in self._planned if row not in self._asked] or \
            [int(row) for row in self._leaders[:LIKELY + 1] if row not in self._asked]
        return [self.table.config(row) for row in rows]

    def tell(self, config: Config, score: float | None) -> None:
        row = self.table.row(config)
        self._asked.add(row)
        self._rows.append(row)
        if score is None or not math.isfinite(score):
            self._spent.append(math.inf)
        else:
            self._spent.append(min(max(-score, -LARGEST), LARGEST))

    def _next(self) -> int | None:
        while self._planned:
            row = self._planned.pop(0)
            if row not in self._asked:
                return row
        self.table.grow()
        left = np.ones(len(self.table), bool)
        left[list(self._asked)] = False
        rest = np.flatnonzero(left)
        if not len(rest):
            return None
        spent = np.array(self._spent)
        if np.isfinite(spent).sum() < 3:
            return int(self._rng.choice(rest))
        return self._improving(rest, spent)

    def _improving(self, rest: Array, spent: Array) -> int:
        """Return the row whose expected improvement is the largest."""
        worked = np.isfinite(spent)
        rows, values = np.array(self._rows)[worked], spent[worked]
        idle = _without_gain(values)
        rows, values = _worth_keeping(rows, values)
        slow = max(float(np.quantile(values, SLOW_QUANTILE)), values.min() + SLOW_LOG)
        values = np.minimum(values, slow)
        spread = max(float(values.std()), LEAST_SPREAD)
        values = (values - values.mean()) / spread
        scored = self._scored(rest, rows[np.argsort(values, kind="stable")[:3]])
        asks_advice = self.advised and idle < DOUBTED and (idle < 4 or idle % 2 == 0)
        if self.advised and idle == DOUBTED and not self._looked_around:
            self._looked_around = True
            self._planned = self._design(int(rows[values.argmin()]))[:LOOKED]
        process = self._model(rows, values, spread, asks_advice)
        if asks_advice and len(spent) >= TOLD and self._misleads(process, rows, values):
            self.advised = asks_advice = False
            self._planned = self._design(int(rows[values.argmin()]))[:max(0, DESIGNED - len(rows))]
            process = self._model(rows, values, spread, False)
        mean, deviation = process.predict(self._points(scored, spread, asks_advice))
        if asks_advice:
            mean = mean + self._advice_of(scored).mean(1) / spread
        settle = idle > PATIENCE and len(rows) % SETTLING == 0
        demand = values.min() - (0.0 if settle else RESTLESS * min(idle, RESTLESS_MOST))
        gain = _expected_improvement(mean, deviation, demand)
        if not worked.all():
            gain = gain * self._works(process, scored, worked)
        order = np.argsort(-gain, kind="stable")
        self._leaders = scored[order[:500]]
        return int(scored[order[0]])

    def _model(self, rows: Array, values: Array, spread: float, advised: bool) -> GaussianProcess:
        points = self._points(rows, spread, advised)
        left = values - self._advice_of(rows).mean(1) / spread if advised else values
        if len(rows) >= self._learnt + max(1, len(rows) // 15):
            some = self._some(values)
            self._by.fit(points[some], left[some], 40 if not self._learnt else 8)
            self._learnt = len(rows)
        return GaussianProcess(points, left, self._by)

    def _misleads(self, process: GaussianProcess, rows: Array, values: Array) -> bool:
        """Tell whether observations agree with advice less than with none."""
        stretched = 1.0 + PRIOR_SPREAD * float(process.slopes.sum())
        alone = GaussianProcess(self.table.points[rows], values, self._by)
        return stretched < AGREEMENT or alone.cost < process.cost - EVIDENCE

    def _points(self, rows: Array, spread: float, advised: bool) -> Points:
        points = self.table.points[rows]
        if not advised:
            return points
        return replace(points, advice=self._advice_of(rows) * np.float32(PRIOR_SPREAD / spread))

    def _advice_of(self, rows: Array) -> Array:
        """Return what is advised of some rows; of those that came later, what is usual."""
        if later := len(self.table) - len(self._advice):
            usual = np.repeat(self._advice.mean(0, keepdims=True), later, axis=0)
            self._advice = np.concatenate([self._advice, usual])
        advised: Array = self._advice[rows]
        return advised

    def _some(self, values: Array) -> Array:
        """Return which observations to learn from: all, or of many the best and some others."""
        if len(values) <= LEARNT:
            return np.arange(len(values))
        order = np.argsort(values, kind="stable")
        best, others = order[: LEARNT // 3], np.sort(order[LEARNT // 3:])
        return np.concatenate([best, others[np.linspace(0, len(others) - 1, LEARNT - len(best),
                                                        dtype=int)]])

    def _scored(self, rest: Array, best: Array) -> Array:
        """Return the rows to look at: all that are left, or of many the likely and some others."""
        if len(rest) <= SCORED:
            return rest
        likely = np.concatenate([self._leaders, *(self.table.neighbours(int(row))
                                                  for row in best)])
        others = self._rng.choice(rest, SCORED - min(len(likely), SCORED // 2), replace=False)
        return np.intersect1d(np.concatenate([likely, others]), rest)

    def _works(self, process: GaussianProcess, scored: Array, worked: Array) -> Array:
        """Return how likely each row works, by what its neighbours did."""
        points, rows = self.table.points[scored], np.array(self._rows)
        good, bad = (1.0 + process.near(points, self.table.points.features[rows[which]], SHARPNESS)
                     for which in (worked, ~worked))
        likely: Array = good / (good + bad - 1.0)
        return likely

    def _design(self, first: int) -> list[int]:
        features = self.table.places
        chosen = [first]
        nearest = np.abs(features - features[first]).sum(1)
        while len(chosen) < min(DESIGNED, len(self.table)):
            drawn = self._rng.choice(len(self.table), min(DRAWN, len(self.table)), replace=False)
            chosen.append(int(drawn[nearest[drawn].argmax()]))
            nearest = np.minimum(nearest, np.abs(features - features[chosen[-1]]).sum(1))
        return chosen[1:]

    def _advised(self) -> list[int]:
        """Return what history says is best: by all sources together, then by each."""
        together = [int(self._advice.mean(1).argmin())]
        return together + [int(column.argmin()) for column in self._advice.T[:3]]


def _worth_keeping(rows: Array, values: Array) -> tuple[Array, Array]:
    if len(rows) <= KEPT:
        return rows, values
    best = np.argsort(values[:-KEPT // 2], kind="stable")[: KEPT // 2]
    kept = np.concatenate([np.sort(best), np.arange(len(rows) - KEPT // 2, len(rows))])
    return rows[kept], values[kept]


def _without_gain(spent: Array) -> int:
    """Return how many observations there were since one was the best by a margin."""
    best, last = math.inf, 0
    for number, one in enumerate(spent):
        if one < best - GAIN:
            best, last = float(one), number
    return len(spent) - 1 - last


def _expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    z = (best - mean) / deviation
    gain: Array = deviation * (z * _below(z) + np.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi))
    return gain


def _below(z: Array) -> Array:
    """Return the normal distribution function (Abramowitz and Stegun 26.2.17, error 7.5e-8)."""
    t = 1.0 / (1.0 + 0.2316419 * np.abs(z))
    tail = np.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi) * t * (
        0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978
                                                                  + t * 1.330274429))))
    return np.where(z > 0.0, 1.0 - tail, tail)
