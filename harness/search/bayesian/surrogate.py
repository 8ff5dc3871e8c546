"""The model of a search: a Gaussian process over observations, with advice from other recordings.

Advice has one column per source: the log ratio of each configuration to the source's best, at most
WORST. Where a source did not try a configuration, another Gaussian process predicts its ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harness.search.bayesian.config_table import ConfigTable
from harness.search.bayesian.gaussian_process import Array, GaussianProcess, Hyperparameters, Points
from harness.search.space.tunable_source import Observation

LEARNT = 120
"""The most observations from which hyperparameters are learnt."""
SHARPNESS = 2.0
PRIOR_SPREAD = 0.5
"""The prior standard deviation of the factor by which a source's log ratios apply here."""
LEAST_OBSERVATIONS, EVIDENCE, AGREEMENT = 8, 1.0, 0.3
"""After LEAST_OBSERVATIONS, advice is dropped if it lowers the log likelihood by EVIDENCE, or if
the effects seen here are smaller than AGREEMENT times the advised ones."""
WORST = 1.0
"""A larger log ratio to the best of a source counts as this."""
LEAST = 8
"""A source with fewer working configurations is not used."""
MOST_SOURCES = 4
STEPS = 20


class Surrogate:
    """Fits a Gaussian process to observations; `history` advises it."""

    def __init__(self, table: ConfigTable, history: Sequence[Observation]) -> None:
        self.table = table
        self._advice = _advice(table, history)
        self.has_advice = bool(self._advice.shape[1])
        self._hyperparameters = Hyperparameters(table.encoding.scales)
        self._learnt = 0

    def advised_rows(self) -> list[int]:
        """Return the best row by the mean of all sources, then that of each of the first three."""
        together = [int(self._advice.mean(1).argmin())]
        return together + [int(column.argmin()) for column in self._advice.T[:3]]

    def fit(self, rows: Array, values: Array, spread: float, *, advised: bool) -> GaussianProcess:
        """Return the process after observing values that were divided by `spread`."""
        points = self._points(rows, spread, advised)
        rest = values - self._advice_of(rows).mean(1) / spread if advised else values
        if len(rows) >= self._learnt + max(1, len(rows) // 15):
            chosen = _to_learn_from(values)
            self._hyperparameters.fit(points[chosen], rest[chosen], 40 if not self._learnt else 8)
            self._learnt = len(rows)
        return GaussianProcess(points, rest, self._hyperparameters)

    def predict(self, process: GaussianProcess, rows: Array, spread: float, *,
                advised: bool) -> tuple[Array, Array]:
        """Return the mean and deviation of each row's standardised value."""
        mean, deviation = process.predict(self._points(rows, spread, advised))
        if advised:
            mean = mean + self._advice_of(rows).mean(1) / spread
        return mean, deviation

    def is_misled(self, process: GaussianProcess, rows: Array, values: Array) -> bool:
        """Return whether advice is misleading, by EVIDENCE and AGREEMENT."""
        slopes = process.points.advice.T @ process.solved  # in deviations of the prior
        stretched = 1.0 + PRIOR_SPREAD * float(slopes.sum())
        alone = GaussianProcess(self.table.points[rows], values, self._hyperparameters)
        return stretched < AGREEMENT or alone.cost < process.cost - EVIDENCE

    def works(self, process: GaussianProcess, rows: Array, tried: Array, worked: Array) -> Array:
        """Return the probability that each row works, from its neighbours among the tried."""
        points = self.table.points[rows]
        good, bad = (1.0 + process.near(points, self.table.points.features[tried[which]], SHARPNESS)
                     for which in (worked, ~worked))
        probability: Array = good / (good + bad - 1.0)
        return probability

    def _points(self, rows: Array, spread: float, advised: bool) -> Points:
        points = self.table.points[rows]
        if not advised:
            return points
        return replace(points, advice=self._advice_of(rows) * np.float32(PRIOR_SPREAD / spread))

    def _advice_of(self, rows: Array) -> Array:
        """Return the advice on some rows; rows added later get the average advice."""
        if later := len(self.table) - len(self._advice):
            average = np.repeat(self._advice.mean(0, keepdims=True), later, axis=0)
            self._advice = np.concatenate([self._advice, average])
        advice: Array = self._advice[rows]
        return advice


def _to_learn_from(values: Array) -> Array:
    """Return the observations to learn from: all, or of many the best and evenly chosen others."""
    if len(values) <= LEARNT:
        return np.arange(len(values))
    order = np.argsort(values, kind="stable")
    best, others = order[: LEARNT // 3], np.sort(order[LEARNT // 3:])
    return np.concatenate([best, others[np.linspace(0, len(others) - 1, LEARNT - len(best),
                                                    dtype=int)]])


def _advice(table: ConfigTable, history: Sequence[Observation]) -> Array:
    """Return each source's values (rows x sources), the sources with the most rows first."""
    sources: dict[str, dict[int, float]] = {}
    for observation in history:
        us = observation.latency_us
        log_us = math.log(us) if us is not None and 0.0 < us < math.inf else math.inf
        known = sources.setdefault(observation.source, {})
        row = table.row(observation.config)
        known[row] = min(log_us, known.get(row, math.inf))
    usable = [known for known in sources.values()
              if sum(map(math.isfinite, known.values())) >= LEAST]
    usable.sort(key=len, reverse=True)
    advice = [_advice_column(table, known) for known in usable[:MOST_SOURCES]]
    return np.array(advice, np.float32).T.reshape(len(table), len(advice))


def _advice_column(table: ConfigTable, known: dict[int, float]) -> Array:
    """Return a source's advice on all rows; a Gaussian process predicts it where not `known`."""
    rows = np.array(list(known))
    log_us = np.array(list(known.values()))
    values = np.minimum(log_us - log_us.min(), WORST)
    column = np.full(len(table), np.nan)
    column[rows] = values
    missing = np.flatnonzero(np.isnan(column))
    if len(missing):
        order = np.argsort(values, kind="stable")
        chosen = order if len(order) <= LEARNT else np.concatenate(
            [order[: LEARNT // 2], order[LEARNT // 2:: max(1, 2 * len(order) // LEARNT)]])
        spread = float(values[chosen].std()) or 1.0
        hyperparameters = Hyperparameters(table.encoding.scales)
        hyperparameters.fit(table.points[rows[chosen]], values[chosen] / spread, STEPS)
        process = GaussianProcess(table.points[rows[chosen]], values[chosen] / spread,
                                  hyperparameters)
        for part in np.array_split(missing, 1 + len(missing) // 4096):
            column[part] = np.clip(process.predict(table.points[part])[0] * spread, 0.0, WORST)
    return column
