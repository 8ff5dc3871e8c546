"""How well a partition of rows explains their behaviour: what a row costs beyond its size.

Rows behave alike if one power law of their size gives their costs, and if one ratio gives what
another implementation costs on them. A partition is scored as a model is: by what it leaves
unexplained, and by how many numbers it needs for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

FLOOR = 0.05
"""What rows differ by, in logarithms, without behaving differently: about 5 %."""
PRIOR = 3.0
"""So many rows a size's power is worth before any is seen: 1 for work, 0 for what is unknown."""
MOST_POWER = 3.0
OWN_LAW = 4
"""Rows from which a class has a law of its own; fewer follow the law of all."""


@dataclass(frozen=True, kw_only=True)
class RowSignal:
    """A number of each row that rows which behave alike have in common, up to a law of `work`."""

    values: tuple[float, ...]
    work: tuple[float, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class RowSize:
    """A size of each row, and what rows must share to differ by nothing but this size."""

    numbers: tuple[float, ...]
    beside: tuple[Hashable, ...]
    prior: float = 1.0


def signals(costs: Sequence[float], sizes: Sequence[RowSize],
            others: Sequence[Sequence[float]]) -> tuple[RowSignal, ...]:
    """Return the costs with the law of their sizes, and their ratios to other costs."""
    logs = tuple(math.log(cost) for cost in costs)
    work = _work(logs, sizes)
    ratios = (tuple(log - math.log(other) for log, other in zip(logs, column, strict=True))
              for column in others)
    return (RowSignal(values=logs, work=work),
            *(RowSignal(values=ratio, weight=1 / len(others)) for ratio in ratios))


def unexplained(signal: RowSignal, classes: Sequence[int]) -> tuple[float, int]:
    """Return the squares that a partition leaves, and how many numbers it takes."""
    if not signal.work:
        return _around_means(signal.values, classes)
    sums: dict[int, list[float]] = {}
    for x, y, one in zip(signal.work, signal.values, classes, strict=True):
        kept = sums.setdefault(one, [0.0] * 6)
        kept[0] += 1
        kept[1] += x
        kept[2] += y
        kept[3] += x * x
        kept[4] += x * y
        kept[5] += y * y
    total, taken = 0.0, 0
    for n, x, y, xx, xy, yy in sums.values():
        square, both = xx - x * x / n, xy - x * y / n
        own = n >= OWN_LAW and square > 1e-9
        slope = both / square if own else 1.0
        total += max(0.0, yy - y * y / n - slope * (2 * both - slope * square))
        taken += 2
    return total, taken


def score(found: Sequence[RowSignal], classes: Sequence[int]) -> float:
    """Return how bad a partition is: smaller is better. A number costs the more, the fewer rows
    are left to bear it out.
    """
    n, bad = len(classes), 0.0
    for signal in found:
        left, numbers = unexplained(signal, classes)
        few = n / max(1, n - numbers - 1)
        bad += signal.weight * (n * math.log(left / n + FLOOR**2)
                                + few * numbers * math.log(n + 1))
    return bad


def explained(found: Sequence[RowSignal], classes: Sequence[int]) -> float:
    """Return the share of the differences between rows that a partition explains."""
    alike = [0] * len(classes)
    shares, weights = 0.0, 0.0
    for signal in found:
        whole = unexplained(signal, alike)[0]
        if whole / len(classes) <= FLOOR**2 / 4:
            continue
        weight = signal.weight * whole
        shares += weight * max(0.0, 1 - unexplained(signal, classes)[0] / whole)
        weights += weight
    return shares / weights if weights else 0.0


def _around_means(values: Sequence[float], classes: Sequence[int]) -> tuple[float, int]:
    sums: dict[int, list[float]] = {}
    for value, one in zip(values, classes, strict=True):
        kept = sums.setdefault(one, [0.0, 0.0, 0.0])
        kept[0] += 1
        kept[1] += value
        kept[2] += value * value
    left = sum(max(0.0, squares - total * total / n) for n, total, squares in sums.values())
    return left, len(sums)


def _work(logs: Sequence[float], sizes: Sequence[RowSize]) -> tuple[float, ...]:
    """Return each row's size as the costs weigh it: a power law of all rows.

    A size's power is the middle of those between rows that differ by it alone, so that a jump at
    one place does not bend it; where there are too few such rows, the one that fits all best, which
    for a few rows is near 1.
    """
    if not sizes:
        return ()
    columns = [_centred([math.log(number) for number in size.numbers]) for size in sizes]
    work = [0.0] * len(logs)
    open_: list[list[float]] = []
    open_priors = []
    for size, column in zip(sizes, columns, strict=True):
        powers = list(_powers(logs, column, size.beside))
        if len(powers) < max(3, len(logs) // 8):
            open_.append(column)
            open_priors.append(size.prior)
            continue
        power = median(powers)
        work = [sum_ + power * value for sum_, value in zip(work, column, strict=True)]
    left = _centred([log - sum_ for log, sum_ in zip(logs, work, strict=True)])
    pull = PRIOR / len(logs)
    matrix = [[math.fsum(a * b for a, b in zip(one, other, strict=True)) for other in open_]
              for one in open_]
    right = [math.fsum(a * b for a, b in zip(one, left, strict=True)) for one in open_]
    for at in range(len(open_)):
        right[at] += pull * open_priors[at] * matrix[at][at]
        matrix[at][at] *= 1 + pull
    for power, column in zip(_solved(matrix, right), open_, strict=True):
        kept = min(max(power, 0.0), MOST_POWER)
        work = [sum_ + kept * value for sum_, value in zip(work, column, strict=True)]
    return tuple(work)


def _centred(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values]


def _powers(logs: Sequence[float], column: Sequence[float],
            beside: Sequence[Hashable]) -> Iterator[float]:
    """Yield the power of a size between each two rows next to each other in nothing but it."""
    alike: dict[Hashable, list[tuple[float, float]]] = {}
    for log, value, key in zip(logs, column, beside, strict=True):
        alike.setdefault(key, []).append((value, log))
    for rows in alike.values():
        for (value, log), (larger, after) in pairwise(sorted(rows)):
            if larger > value:
                yield (after - log) / (larger - value)


def _solved(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Solve the normal equations; a column that repeats others gets no power of its own."""
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
