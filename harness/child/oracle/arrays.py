"""The array operations of the oracle that numpy and torch spell alike; above all, errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

SAMPLE = 1 << 20
FEWEST = 16
"""Fewest values of a row or a column whose loss counts."""
FAINT = 1e-12
"""Values below this share of an output's scale may be rounding errors, even in float64."""


def table(shape: Sequence[int]) -> tuple[int, int] | None:
    """Return the rows and columns to cut values into, None for too few of them."""
    count = math.prod(shape)
    side = math.isqrt(count)
    if side < FEWEST:
        return None
    columns = shape[-1] if len(shape) > 1 and shape[-1] >= FEWEST else side
    return count // columns, columns


def middle(low: float | None, high: float | None) -> float:
    """Return the value towards which factors move contents: zero, or the middle of their bounds."""
    if low is None and high is None:
        return 0.0
    return ((0.0 if low is None else low) + (1.0 if high is None else high)) / 2


def int_bounds(low: float | None, high: float | None) -> tuple[int, int]:
    """Return the bounds of integers; the second one is exclusive."""
    return int(low or 0), 2 if high is None else int(high)


class Arrays:
    """Works on float64 arrays of a library, numpy or torch.

    `chunk` is the number of elements that are copied or compared at a time. `kernels` are those
    for a card, if there are any.
    """

    chunk: int
    kernels: Any = None
    quiet: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Suppresses warnings about values that are not finite."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.where, self.floor = library.where, library.floor
        self.exp, self.log, self.clip = library.exp, library.log, library.clip

    def dtype(self, name: str) -> Any:
        raise NotImplementedError

    def as_wide(self, value: Any) -> Any:
        raise NotImplementedError

    def scale(self, want: Any) -> float:
        """Return the root mean square of values, or 1 if that is zero."""
        raise NotImplementedError

    def uniform(self, shape: list[int], generator: Any) -> Any:
        raise NotImplementedError

    def largest(self, dtype: str) -> float:
        return float(self.library.finfo(self.dtype(dtype)).max)

    def typed(self, raw: Any, dtype: str) -> Any:
        """Return bytes, row by row, as values of a dtype."""
        return raw.view(self.dtype(dtype))

    def strided(self, flat: Any, shape: list[int], layout: str) -> Any:
        """Return values in a shape: a view of every other column, or a transposed one."""
        if layout == "columns":
            return flat.reshape([*shape[:-1], 2 * shape[-1]])[..., ::2]
        if layout == "transposed":
            return flat.reshape([*shape[:-2], shape[-1], shape[-2]]).swapaxes(-1, -2)
        return flat.reshape(shape)

    def shape(self, value: Any) -> list[int]:
        return list(value.shape)

    def full(self, like: Any, value: float) -> Any:
        return self.library.full_like(like, value)

    def peak(self, value: Any) -> float:
        return float(abs(value).max()) if math.prod(value.shape) else 0.0

    def differ(self, left: Any, right: Any) -> Any:
        """Return whether any values differ, as a vector of one element; do not wait for the GPU."""
        return (left != right).any().reshape(1)

    def not_finite(self, value: Any) -> tuple[int, int]:
        """Return how many values are not finite, and the index of the first of them, else 0."""
        odd = ~self.library.isfinite(value).reshape(-1)
        count = int(self.library.count_nonzero(odd))
        return count, int((odd * 1).argmax()) if count else 0

    def other_infinities(self, got: Any, want: Any) -> int:
        """Return how many expected infinite values the answer does not have."""
        return int(self.library.count_nonzero(
            self.library.isinf(want) & (self.as_wide(got) != want)))

    def nudged(self, value: Any, part: float, generator: Any) -> Any:
        """Return the value with every element scaled by 1 + part or 1 - part, at random."""
        if value.dtype != self.dtype("float64"):
            return value
        side = self.uniform(self.shape(value), generator) - 0.5
        return value * (1 + part * self.as_wide(self.library.sign(side)))

    def rounding(self, part: float, seed: int) -> AbstractContextManager[Any]:
        """Let each operation of a reference scale its result by up to `part`, if it can."""
        return nullcontext()

    def errors(self, got: Any, want: Any) -> tuple[float, float, int]:
        """Return the largest absolute and relative errors, and how many values should be finite.

        Only values that are finite in `want` count. An error is relative to the expected value or
        to the root mean square of all expected values, whichever is larger.
        """
        known = self.library.isfinite(want)
        if not known.all():
            got, want = self.as_wide(got)[known], want[known]
        if not math.prod(want.shape):
            return 0.0, 0.0, 0
        scale = self.scale(want)
        if self.kernels is not None and self.kernels.support(got):
            return tuple(self.kernels.errors(got, want, scale))
        got = self.as_wide(got)
        finite = self.library.isfinite(got)
        difference = self.where(finite, abs(got - want), 0.0)
        relative = difference / self.clip(abs(want), scale, math.inf)
        return (float(difference.max()), float(relative.max()),
                int(self.library.count_nonzero(~finite)))

    def lost(self, got: Any, want: Any) -> float:
        """Return the largest error of a row or a column, relative to its expected values' size.

        A vector is cut into rows. Rows and columns of fewer than FEWEST values, and those whose
        values are as small as rounding errors, do not count; neither do integers.
        """
        cut = table(want.shape)
        if cut is None or "float" not in str(got.dtype):
            return 0.0
        rows, columns = cut
        least = max(FAINT * self.scale(want), 64 * float(self.library.finfo(got.dtype).tiny))
        got, want = (value.reshape(-1)[:rows * columns].reshape(rows, columns)
                     for value in (got, want))
        sums = [self.full(part, 0.0) for part in (want[:, 0], want[:, 0], want[0], want[0])]
        step, worst = max(1, self.chunk // columns), 0.0
        with self.quiet():
            for first in range(0, rows, step):
                some = slice(first, first + step)
                part = want[some]
                off = self.as_wide(got[some]) - part
                off *= off
                part = part * part
                sums[0][some], sums[1][some] = off.sum(1), part.sum(1)
                sums[2] += off.sum(0)
                sums[3] += part.sum(0)
            for off, size, count in ((*sums[:2], columns), (*sums[2:], rows)):
                share = (off / size)[(size > count * least ** 2) & self.library.isfinite(off)]
                if count >= FEWEST and len(share):
                    worst = max(worst, float(share.max()))
        return float(worst ** 0.5)

    def typical(self, got: Any, want: Any) -> float:
        """Return the 90th percentile of the relative errors."""
        every = max(1, math.prod(want.shape) // SAMPLE)
        got, want = (value.reshape(-1)[::every] for value in (got, want))
        known = self.library.isfinite(got) & self.library.isfinite(want)
        got, want = got[known], want[known]
        if not len(want):
            return 0.0
        relative = abs(got - want) / self.clip(abs(want), self.scale(want), math.inf)
        return float(self.library.quantile(relative, 0.9))
