"""Choose shapes that the task does not list: a kernel right only on listed ones is over-fit.

One size of a config class is changed to a value between or beyond the listed ones. Such shapes are
checked and never timed. A failure counts only if the baseline is right on that shape: a kernel may
need multiples of a tile if the baseline does.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from harness.errors import InputError
from harness.tasks.target import ConfigClass, Target
from harness.tasks.task_file import check

LEAST_SIZE = 3
"""A name in a shape is a size if one of its values reaches this number, otherwise a flag."""


@dataclass(frozen=True, kw_only=True)
class HeldOutPoint:
    """The measured point at index `base`, with another value of `name`.

    A kernel that is split by conditions takes another path on each side of a threshold. Both sides
    of every gap between measured values are points.
    """

    base: int
    name: str
    value: int

    def applied_to(self, point: Mapping[str, int]) -> dict[str, int]:
        """Return a measured point with this value instead of its own."""
        return {**point, self.name: self.value}

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


def points(measured: Sequence[Mapping[str, int]], names: Sequence[str],
           rng: random.Random) -> list[HeldOutPoint]:
    """Return points with other values of `names`, those between measured values first.

    The order is random otherwise.
    """
    between, beyond = list[HeldOutPoint](), list[HeldOutPoint]()
    for name in names:
        values = sorted({point[name] for point in measured})
        if values[-1] < LEAST_SIZE:
            continue
        step = math.gcd(*values) or 1
        for low, high in pairwise(values):
            steps = [(low, low + 1), (low, low + step)], [(high, high - 1), (high, high - step)]
            for choices in steps:
                between += _chosen(measured, name, [
                    (near, value) for near, value in choices if low < value < high], rng)
        least, most = values[0], values[-1]
        beyond += _chosen(measured, name, [(most, most + 1), (most, most + step)], rng)
        beyond += _chosen(measured, name, [(most, 2 * most)], rng)
        beyond += _chosen(measured, name, [
            (least, value) for value in (least - 1, least - step) if value > 0], rng)
    rng.shuffle(between)
    rng.shuffle(beyond)
    return list(dict.fromkeys([*between, *beyond]))


def _chosen(measured: Sequence[Mapping[str, int]], name: str, choices: list[tuple[int, int]],
            rng: random.Random) -> Iterator[HeldOutPoint]:
    """Yield a point for a random one of `choices`, which are (nearest measured value, value)."""
    if choices:
        near, value = rng.choice(choices)
        bases = [at for at, point in enumerate(measured) if point[name] == near]
        yield HeldOutPoint(base=rng.choice(bases), name=name, value=value)


LEAST_BYTES = 128 << 20
"""Least budget of all checked shapes together; usually it is the bytes of all config classes."""
MOST_PER_CLASS, MOST_PER_TASK = 2, 16
"""Most shapes that are checked: per config class, and per task."""


def held_out_shapes(target: Target, rng: random.Random) -> Iterator[ConfigClass]:
    """Yield config classes with one size changed, together no larger than the budget."""
    left = max(LEAST_BYTES, sum(nbytes_of(target, entry) for entry in target.classes))
    names = [name for name in target.classes[0].shape
             if all(name in entry.shape for entry in target.classes)]
    yielded = 0
    for point in points([entry.shape for entry in target.classes], names, rng):
        base = target.classes[point.base]
        changed = replace(base, shape=point.applied_to(base.shape))
        try:
            check(replace(target, classes=(changed,)))
        except InputError:
            continue
        size = nbytes_of(target, changed)
        if _is_below_indices(target, base, changed, point.name):
            continue
        if size <= left and yielded < min(MOST_PER_TASK, MOST_PER_CLASS * len(target.classes)):
            left, yielded = left - size, yielded + 1
            yield changed


def _is_below_indices(target: Target, base: ConfigClass, changed: ConfigClass, name: str) -> bool:
    """Return whether a size falls below the fixed range of integers that may be indices into it.

    On a GPU an index out of range would end the oracle's process.
    """
    least, most = changed.shape[name], base.shape[name]
    return any(least < (tensor.high or 0) <= most for tensor in target.tensors(changed)
               if "float" not in tensor.dtype and tensor.role in ("input", "inout"))


def nbytes_of(target: Target, config_class: ConfigClass) -> int:
    """Return the bytes of all tensors of a class."""
    return sum(tensor.nbytes for tensor in target.tensors(config_class)
               if tensor.role != "scalar")
