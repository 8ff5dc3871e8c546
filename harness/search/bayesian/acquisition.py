"""Score proposals: expected improvement, and the observations that it is computed from.

Expected improvement: Mockus (1975); Jones, Schonlau and Welch, Efficient Global Optimization
(1998).
"""

from __future__ import annotations

import math

import numpy as np

from harness.search.bayesian.gaussian_process import Array

KEPT = 400
"""Observations that predict: of more, the best half and the latest half."""
SLOW_QUANTILE, SLOW_LOG = 0.7, 0.5
"""A value above this quantile, and above 1.6 times the best, counts as just that slow."""
GAIN = 0.01
"""A smaller log ratio does not count as a new best: it does not end a stagnation."""
RESTLESS, RESTLESS_MOST = 0.07, 10
"""Standard deviations added to the required improvement per proposal without a gain, and the most
proposals that count: the search leaves plateaus."""
PATIENCE, SETTLING = 25, 3
"""After this many proposals without a gain, every third one again accepts any improvement: the last
percent is near the best."""


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Return how far each prediction is expected to fall below `best`."""
    z = (best - mean) / deviation
    gain: Array = deviation * (z * _normal_cdf(z) + np.exp(-z * z / 2.0)
                               / math.sqrt(2.0 * math.pi))
    return gain


def required_value(least: float, idle: int, count: int) -> float:
    """Return the value that a proposal should beat after `idle` of `count` without a gain."""
    settles = idle > PATIENCE and count % SETTLING == 0
    return least - (0.0 if settles else RESTLESS * min(idle, RESTLESS_MOST))


def since_last_gain(values: Array) -> int:
    """Return how many observations follow the last one that was the best by `GAIN`."""
    best, last = math.inf, 0
    for number, value in enumerate(values):
        if value < best - GAIN:
            best, last = float(value), number
    return len(values) - 1 - last


def predictive(rows: Array, values: Array) -> tuple[Array, Array]:
    """Return the observations to predict from, with slow values cut off."""
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
