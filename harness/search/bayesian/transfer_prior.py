"""What other recordings of the same kernel say of a space: one column for each source.

A column is the log of the latency above the best of its source, cut off where it no longer
matters. What a source has not tried is filled in by a process of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from harness.search.bayesian.config_table import ConfigTable
from harness.search.bayesian.gaussian_process import Array, GaussianProcess, Hyperparameters
from harness.search.space.space import Observation

WORST = 1.0
"""Log ratio to the best of a source above which slow is just slow."""
LEAST = 8
"""Working configurations that a source must have for it to say anything."""
MOST_SOURCES = 4
LEARNT = 120
STEPS = 20


def columns(table: ConfigTable, history: Sequence[Observation]) -> Array:
    """Return what each source says of each row (rows x sources), the most telling sources first."""
    sources: dict[str, dict[int, float]] = {}
    for one in history:
        us = one.latency_us
        spent = math.log(us) if us is not None and 0.0 < us < math.inf else math.inf
        known = sources.setdefault(one.source, {})
        row = table.row(one.config)
        known[row] = min(spent, known.get(row, math.inf))
    telling = [known for known in sources.values()
               if sum(map(math.isfinite, known.values())) >= LEAST]
    telling.sort(key=len, reverse=True)
    found = [_column(table, known) for known in telling[:MOST_SOURCES]]
    return np.array(found, np.float32).T.reshape(len(table), len(found))


def _column(table: ConfigTable, known: dict[int, float]) -> Array:
    rows = np.array(list(known))
    spent = np.array(list(known.values()))
    worth = np.minimum(spent - spent.min(), WORST)
    column = np.full(len(table), np.nan)
    column[rows] = worth
    missing = np.flatnonzero(np.isnan(column))
    if len(missing):
        order = np.argsort(worth, kind="stable")
        taken = order if len(order) <= LEARNT else np.concatenate(
            [order[: LEARNT // 2], order[LEARNT // 2:: max(1, 2 * len(order) // LEARNT)]])
        spread = float(worth[taken].std()) or 1.0
        by = Hyperparameters(table.encoding.scales)
        by.fit(table.points[rows[taken]], worth[taken] / spread, STEPS)
        process = GaussianProcess(table.points[rows[taken]], worth[taken] / spread, by)
        for part in np.array_split(missing, 1 + len(missing) // 4096):
            column[part] = np.clip(process.predict(table.points[part])[0] * spread, 0.0, WORST)
    return column
