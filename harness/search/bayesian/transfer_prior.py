"""Advice from other recordings of the same kernel: one column per source.

A column is the log ratio of each latency to the best of its source, cut off where it no longer
matters. Configurations that a source has not tried are predicted by a process of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from harness.search.bayesian.config_table import ConfigTable
from harness.search.bayesian.gaussian_process import Array, GaussianProcess, Hyperparameters
from harness.search.space.space import Observation

WORST = 1.0
"""Log ratio to the best of a source at which values are cut off."""
LEAST = 8
"""Working configurations that a source needs to be used."""
MOST_SOURCES = 4
LEARNT = 120
STEPS = 20


def columns(table: ConfigTable, history: Sequence[Observation]) -> Array:
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
    advice = [_column(table, known) for known in usable[:MOST_SOURCES]]
    return np.array(advice, np.float32).T.reshape(len(table), len(advice))


def _column(table: ConfigTable, known: dict[int, float]) -> Array:
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
