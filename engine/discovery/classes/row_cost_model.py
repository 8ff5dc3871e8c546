"""Score how well a partition of rows explains their behaviour: their costs beyond their sizes.

Rows behave alike if one power law of their size gives their costs, and one ratio gives the costs of
another implementation. A partition is scored as a statistical model: by the variance that it leaves
unexplained, and by its number of parameters.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

FLOOR = 0.05
"""Log-difference of rows that still behave alike: about 5 %."""
PRIOR = 3.0
"""Weight, in rows, of a size's prior power: 1 for a size of the work, 0 for an unknown column."""
MOST_POWER = 3.0
OWN_LAW = 4
"""A class with fewer rows than this follows the law of all rows instead of its own."""


@dataclass(frozen=True, kw_only=True)
class RowSignal:
    """A number for each row: rows that behave alike have the same, or follow one law of `work`."""

    values: tuple[float, ...]
    work: tuple[float, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class RowSize:
    """A size of each row; rows with equal `other_cells` differ in nothing else."""

    numbers: tuple[float, ...]
    other_cells: tuple[Hashable, ...]
    prior: float = 1.0


def row_signals(costs: Sequence[float], sizes: Sequence[RowSize],
            others: Sequence[Sequence[float]]) -> tuple[RowSignal, ...]:
    """Return the signals of rows: their costs with their work, and ratios to other costs."""
    logs = tuple(math.log(cost) for cost in costs)
    work = _work(logs, sizes)
    ratios = (tuple(log - math.log(other) for log, other in zip(logs, column, strict=True))
              for column in others)
    return (RowSignal(values=logs, work=work),
            *(RowSignal(values=ratio, weight=1 / len(others)) for ratio in ratios))


def unexplained(signal: RowSignal, classes: Sequence[int]) -> tuple[float, int]:
    """Return the sum of squares that a partition leaves, and its number of parameters."""
    sums: dict[int, list[float]] = {}
    work = signal.work or (0.0,) * len(classes)
    for x, y, class_index in zip(work, signal.values, classes, strict=True):
        moments = sums.setdefault(class_index, [0.0] * 6)
        moments[0] += 1
        moments[1] += x
        moments[2] += y
        moments[3] += x * x
        moments[4] += x * y
        moments[5] += y * y
    total = 0.0
    for n, x, y, xx, xy, yy in sums.values():
        var_x, cov_xy = xx - x * x / n, xy - x * y / n  # both times n
        has_law = n >= OWN_LAW and var_x > 1e-9
        slope = cov_xy / var_x if has_law else 1.0
        total += max(0.0, yy - y * y / n - slope * (2 * cov_xy - slope * var_x))
    return total, len(sums) * (2 if signal.work else 1)


def partition_score(signals: Sequence[RowSignal], classes: Sequence[int]) -> float:
    """Return the score of a partition; smaller is better.

    A parameter costs more if fewer rows are left to support it.
    """
    n, total = len(classes), 0.0
    for signal in signals:
        squares, parameters = unexplained(signal, classes)
        penalty = n / max(1, n - parameters - 1)
        total += signal.weight * (n * math.log(squares / n + FLOOR**2)
                                + penalty * parameters * math.log(n + 1))
    return total


def explained_share(signals: Sequence[RowSignal], classes: Sequence[int]) -> float:
    """Return the share of the differences between rows that a partition explains."""
    one_class = [0] * len(classes)
    shares, weights = 0.0, 0.0
    for signal in signals:
        whole = unexplained(signal, one_class)[0]
        if whole / len(classes) <= FLOOR**2 / 4:
            continue
        weight = signal.weight * whole
        shares += weight * max(0.0, 1 - unexplained(signal, classes)[0] / whole)
        weights += weight
    return shares / weights if weights else 0.0


def _work(logs: Sequence[float], sizes: Sequence[RowSize]) -> tuple[float, ...]:
    """Return each row's combined size: the product of its sizes to the powers that fit all costs.

    A size's power is the median over pairs of rows that differ only in it, so that a jump of the
    costs at one size does not change it. With too few such pairs, the power is fitted to all rows;
    with few rows it stays near the prior.
    """
    if not sizes:
        return ()
    import numpy as np  # loads slowly, and only a baseline needs it

    work = np.zeros(len(logs))
    fitted, priors = [], []
    for size in sizes:
        column = np.log(size.numbers)
        column -= column.mean()
        powers = list(_powers(logs, column.tolist(), size.other_cells))
        if len(powers) < max(3, len(logs) // 8):
            fitted.append(column)
            priors.append(size.prior)
        else:
            work += median(powers) * column
    if fitted:
        columns = np.array(fitted)
        rest = np.array(logs) - work
        products = columns @ columns.T
        prior_weight = np.diag(np.diag(products)) * PRIOR / len(logs)
        fit = np.linalg.lstsq(products + prior_weight,
                              columns @ (rest - rest.mean()) + prior_weight @ priors)[0]
        work += np.clip(fit, 0.0, MOST_POWER) @ columns
    return tuple(work.tolist())


def _powers(logs: Sequence[float], column: Sequence[float],
            other_cells: Sequence[Hashable]) -> Iterator[float]:
    """Yield the power of a size between neighbouring rows that differ only in it."""
    alike: dict[Hashable, list[tuple[float, float]]] = {}
    for log, value, key in zip(logs, column, other_cells, strict=True):
        alike.setdefault(key, []).append((value, log))
    for rows in alike.values():
        for (value, log), (larger, after) in pairwise(sorted(rows)):
            if larger > value:
                yield (after - log) / (larger - value)
