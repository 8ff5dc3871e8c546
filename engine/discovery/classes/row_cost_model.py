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
"""Weight of a size's prior power, in rows; the prior is 1 for work, 0 for an unknown column."""
MOST_POWER = 3.0
OWN_LAW = 4
"""Rows from which a class has its own law; smaller classes follow the law of all rows."""


@dataclass(frozen=True, kw_only=True)
class RowSignal:
    """A number per row that is equal for rows that behave alike, up to a law of `work`."""

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
    """Return the costs with the law of their sizes, and their ratios to other costs."""
    logs = tuple(math.log(cost) for cost in costs)
    work = _work(logs, sizes)
    ratios = (tuple(log - math.log(other) for log, other in zip(logs, column, strict=True))
              for column in others)
    return (RowSignal(values=logs, work=work),
            *(RowSignal(values=ratio, weight=1 / len(others)) for ratio in ratios))


def unexplained(signal: RowSignal, classes: Sequence[int]) -> tuple[float, int]:
    """Return the sum of squares that a partition leaves, and its number of parameters."""
    if not signal.work:
        return _around_means(signal.values, classes)
    sums: dict[int, list[float]] = {}
    for x, y, class_index in zip(signal.work, signal.values, classes, strict=True):
        moments = sums.setdefault(class_index, [0.0] * 6)
        moments[0] += 1
        moments[1] += x
        moments[2] += y
        moments[3] += x * x
        moments[4] += x * y
        moments[5] += y * y
    total, parameters = 0.0, 0
    for n, x, y, xx, xy, yy in sums.values():
        square, both = xx - x * x / n, xy - x * y / n
        own = n >= OWN_LAW and square > 1e-9
        slope = both / square if own else 1.0
        total += max(0.0, yy - y * y / n - slope * (2 * both - slope * square))
        parameters += 2
    return total, parameters


def partition_score(signals: Sequence[RowSignal], classes: Sequence[int]) -> float:
    """Return the score of a partition; smaller is better.

    A parameter costs more if fewer rows are left to support it.
    """
    n, total = len(classes), 0.0
    for signal in signals:
        left, numbers = unexplained(signal, classes)
        penalty = n / max(1, n - numbers - 1)
        total += signal.weight * (n * math.log(left / n + FLOOR**2)
                                + penalty * numbers * math.log(n + 1))
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


def _around_means(values: Sequence[float], classes: Sequence[int]) -> tuple[float, int]:
    sums: dict[int, list[float]] = {}
    for value, class_index in zip(values, classes, strict=True):
        moments = sums.setdefault(class_index, [0.0, 0.0, 0.0])
        moments[0] += 1
        moments[1] += value
        moments[2] += value * value
    left = sum(max(0.0, squares - total * total / n) for n, total, squares in sums.values())
    return left, len(sums)


def _work(logs: Sequence[float], sizes: Sequence[RowSize]) -> tuple[float, ...]:
    """Return each row's combined size: the product of its sizes to the powers that fit all costs.

    A size's power is the median over pairs of rows that differ only in it, so that a jump at one
    place does not bend it. With too few such pairs it is fitted to all rows, with a prior that
    dominates for a few rows.
    """
    if not sizes:
        return ()
    columns = [_centred([math.log(number) for number in size.numbers]) for size in sizes]
    work = [0.0] * len(logs)
    fitted: list[list[float]] = []
    priors = []
    for size, column in zip(sizes, columns, strict=True):
        powers = list(_powers(logs, column, size.other_cells))
        if len(powers) < max(3, len(logs) // 8):
            fitted.append(column)
            priors.append(size.prior)
            continue
        power = median(powers)
        work = [sum_ + power * value for sum_, value in zip(work, column, strict=True)]
    left = _centred([log - sum_ for log, sum_ in zip(logs, work, strict=True)])
    pull = PRIOR / len(logs)
    matrix = [[math.fsum(a * b for a, b in zip(column, other, strict=True)) for other in fitted]
              for column in fitted]
    right = [math.fsum(a * b for a, b in zip(column, left, strict=True)) for column in fitted]
    for at in range(len(fitted)):
        right[at] += pull * priors[at] * matrix[at][at]
        matrix[at][at] *= 1 + pull
    for power, column in zip(_solved(matrix, right), fitted, strict=True):
        bounded = min(max(power, 0.0), MOST_POWER)
        work = [sum_ + bounded * value for sum_, value in zip(work, column, strict=True)]
    return tuple(work)


def _centred(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values]


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


def _solved(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Solve the normal equations; a column that depends on others gets power 0."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    least = 1e-9 * max((matrix[at][at] for at in range(size)), default=1.0)
    free = []
    for at in range(size):
        pivot = rows[at][at]
        if pivot <= least:
            free.append(at)
            continue
        for below in range(size):
            if below != at and rows[below][at]:
                share = rows[below][at] / pivot
                rows[below] = [value - share * above for value, above in
                               zip(rows[below], rows[at], strict=True)]
    return [0.0 if at in free else rows[at][size] / rows[at][at] for at in range(size)]
