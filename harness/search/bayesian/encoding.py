"""Encode configurations as numeric features for the Gaussian process.

The feature of a number depends on its ratio to the knob's other choices and on its rank; its odd
factor and the products of knobs in requirements are further features.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence

import numpy as np

from harness.formats import expression
from harness.search.bayesian.gaussian_process import Array, Points, matern
from harness.search.space.constraints import Requirement
from harness.verdict import Value

SCALE_OF_A_KNOB = 0.6
SCALE_OF_AN_AMOUNT = 1.2
"""Prior length scales; with the larger one, a derived feature counts only if results show it."""
SINGLE_SCALE = 0.3
"""Length scale of the covariance kernels that each take one feature."""
LARGEST = 1e12
"""A larger amount counts as this, one below its reciprocal as the reciprocal."""
MOST_WORDS = 16
"""Up to this many words, each has its own column; more have one column, their position."""
_NAMED_NUMBER = re.compile(r"(\w+)['\"]?\s*[=:]\s*(-?\d+(?:\.\d+)?)\b")


class Encoding:
    """Turns choice numbers (configurations x knobs) into features and additive columns."""

    def __init__(self, choices: dict[str, tuple[Value, ...]],
                 requirements: Sequence[Requirement]) -> None:
        self._tables: list[tuple[int, Array]] = []
        scales: list[float] = []
        for knob, values in enumerate(choices.values()):
            for column, scale in _columns(values):
                self._tables.append((knob, column))
                scales.append(scale)
        self._names = {name: (knob, np.array(values, float)) for knob, (name, values)
                       in enumerate(choices.items()) if _numbers(values)}
        free = frozenset(name for name, values in choices.items() if len(values) > 1)
        amounts = {ast.unparse(node): node for requirement in requirements
                   for node in requirement.amounts(free)}
        self._amounts = [node for node in amounts.values()
                         if all(name.id in self._names for name in ast.walk(node)
                                if isinstance(name, ast.Name))]
        self.scales = np.array(scales + [SCALE_OF_AN_AMOUNT] * len(self._amounts))
        self._ranges: list[tuple[float, float]] = []
        self._singles: list[tuple[Array, Array]] = []

    def learn(self, numbers: Array) -> None:
        """Set each feature's range from these configurations; call it once, before `points`."""
        raw = self._raw_features(numbers)
        self._ranges = [(float(column.min()), float(np.ptp(column)) or 1.0) for column in raw.T]
        for column in self._scaled(raw).T:
            levels = np.unique(column)
            if len(levels) > 32:
                levels = np.linspace(0.0, 1.0, 32)
            kernel = matern(np.abs(levels[:, None] - levels[None]) / SINGLE_SCALE)
            weights, vectors = np.linalg.eigh(kernel)
            kept = weights > 1e-6 * weights.max()
            self._singles.append((levels, vectors[:, kept] * np.sqrt(weights[kept])))

    def points(self, numbers: Array) -> Points:
        """Return configurations as points, without advice."""
        features = self._scaled(self._raw_features(numbers))
        single = [table[np.abs(column[:, None] - levels[None]).argmin(1)]
                  for column, (levels, table) in zip(features.T, self._singles, strict=True)]
        width = math.sqrt(max(1, features.shape[1]))
        return Points(features.astype(np.float32),
                      (np.concatenate(single, 1) / width).astype(np.float32)
                      if single else np.zeros((len(numbers), 0), np.float32),
                      np.zeros((len(numbers), 0), np.float32))

    def _raw_features(self, numbers: Array) -> Array:
        columns = [table[numbers[:, knob]] for knob, table in self._tables]
        names = {name: values[numbers[:, knob]] for name, (knob, values) in self._names.items()}
        with np.errstate(all="ignore"):
            for node in self._amounts:
                amount = np.abs(np.asarray(expression.evaluate(node, names), float))
                amount = np.broadcast_to(np.nan_to_num(amount, posinf=LARGEST), len(numbers))
                columns.append(np.log(np.clip(amount, 1.0 / LARGEST, LARGEST)))
        return np.array(columns).T.reshape(len(numbers), len(columns))

    def _scaled(self, raw: Array) -> Array:
        low = np.array([low for low, _ in self._ranges])
        width = np.array([width for _, width in self._ranges])
        scaled: Array = (raw - low) / width if raw.shape[1] else raw
        return scaled


def _columns(values: tuple[Value, ...]) -> list[tuple[Array, float]]:
    """Return a knob's choices as columns of numbers, each with its prior length scale."""
    if len(values) < 2:
        return []
    if _numbers(values):
        return _number_columns([float(value) for value in values])
    fields = [dict(_NAMED_NUMBER.findall(str(value))) for value in values]
    if fields[0] and all(each.keys() == fields[0].keys() for each in fields):
        groups = [_number_columns([float(each[key]) for each in fields]) for key in fields[0]
                  if len({each[key] for each in fields}) > 1]
        if groups:
            return [column for group in groups for column in group]
    if len(values) == 2 or len(values) > MOST_WORDS:
        return [(np.linspace(0.0, 1.0, len(values)), SCALE_OF_A_KNOB)]
    return [((np.arange(len(values)) == word) / math.sqrt(2.0), SCALE_OF_A_KNOB)
            for word in range(len(values))]


def _number_columns(values: list[float]) -> list[tuple[Array, float]]:
    """Return columns: positions (0 to 1; half by ratio, half by rank) and logs of odd factors."""
    levels = sorted(set(values))
    if len(levels) <= 2:
        return [(np.array([float(levels.index(value)) for value in values]), SCALE_OF_A_KNOB)]
    shift = 0.0 if levels[0] > 0 else 1.0 - levels[0]
    logs = [math.log(max(level + shift, 1.0 / LARGEST)) for level in levels]
    width = logs[-1] - logs[0] or math.inf
    place = {level: 0.5 * (log - logs[0]) / width + 0.5 * rank / (len(levels) - 1)
             for rank, (level, log) in enumerate(zip(levels, logs, strict=True))}
    columns = [(np.array([place[value] for value in values]), SCALE_OF_A_KNOB)]
    if all(value > 0 and value.is_integer() for value in values):
        odd = np.array([math.log2(int(value) // (int(value) & -int(value)))
                        for value in values])
        if np.ptp(odd) > 0:
            columns.append((odd, SCALE_OF_AN_AMOUNT))
    return columns


def _numbers(values: Sequence[Value]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
