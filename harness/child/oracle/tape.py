"""The values of one input tensor, from which the contents of its slots are taken.

A tape is a long row of values that is drawn once, all usable kinds of input after one another.
Contents are windows of it at random places, changed by windows of a second row, the noise, so that
no value that a kernel has seen comes again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .inputs import draw

LEAST_EXTRA = 64
WHOLE = 16
"""Contents of each kind on the tape of a structured tensor, which is only used as a whole."""
MORE_NOISE = 4096
"""Elements that the noise has beyond the values, so that short inputs have many contents too."""


@dataclass(frozen=True)
class TapePatch:
    """New values for every `step`th element from `at` on, `length` in all, in the first slots.

    `starts` and `noises` are the places in the tape and in its noise, one a slot; `places` are both
    as indices, in the memory of the arrays.
    """

    at: int
    length: int
    step: int
    starts: Sequence[int]
    noises: Sequence[int]
    places: Any

    @property
    def slots(self) -> int:
        return len(self.starts)

    def of(self, rows: Any) -> Any:
        """Return the elements that it changes, of rows with the values of a slot each."""
        return rows[:, self.at:self.at + (self.length - 1) * self.step + 1:self.step]


class Tape:
    """The values of one input tensor; `count` of them in a row are its contents."""

    def __init__(self, arrays: Any, tensor: dict[str, Any], seed: int, kinds: list[str]) -> None:
        self.count = math.prod(tensor["shape"])
        self.fixed = bool(tensor["weight"] or tensor.get("data"))
        self.whole = bool(tensor.get("structure"))
        self.low, self.high = tensor["low"], tensor["high"]
        self.length = self.count if self.fixed else self.count * WHOLE if self.whole else \
            self.count + max(LEAST_EXTRA, self.count // 4)
        drawn = [self._drawn(arrays, tensor, seed + 7919 * index, kind)
                 for index, kind in enumerate(kinds[:1] if self.fixed else kinds)]
        self.values = arrays.join(drawn) if len(drawn) > 1 else drawn[0]
        self._arrays = arrays
        self.is_float = "float" in tensor["dtype"]
        self.noise_length = MORE_NOISE + (self.length if self.is_float else 0)
        self.noise = None if self.fixed or self.whole else arrays.noise(
            self.noise_length, seed + 31, self.values, self.low, self.high)

    def _drawn(self, arrays: Any, tensor: dict[str, Any], seed: int, kind: str) -> Any:
        parts: list[Any] = []
        missing = self.length
        while missing > 0:
            part = arrays.to_native(draw(arrays, tensor, seed + len(parts), kind), tensor["dtype"])
            parts.append(part[:missing])
            missing -= self.count
        return arrays.join(parts) if len(parts) > 1 else parts[0]

    def patch(self, kinds: Sequence[int], rng: random.Random, *, at: int = 0,
              length: int | None = None, step: int = 1) -> TapePatch:
        """Choose new values at random, of one kind a slot; all elements without a `length`."""
        length = self.count if length is None else length
        places = self.length - length + 1
        noises = self.noise_length - (length if self.is_float else 1) + 1
        step_of_starts = self.count if self.whole else 1
        starts = [0 if self.fixed else
                  kind * self.length + rng.randrange(0, places, step_of_starts) for kind in kinds]
        offsets = [0 if self.fixed else rng.randrange(noises) for _ in kinds]
        return TapePatch(at, length, step, starts, offsets, self._arrays.places([starts, offsets]))

    def write(self, rows: Any, patch: TapePatch, first: int = 0) -> None:
        """Write a patch to rows with the values of a slot each; they begin with slot `first`."""
        view, count = patch.of(rows), rows.shape[0]
        if self.fixed or not patch.length:
            self._arrays.put(view, self.values[:patch.length][None])
            return
        places = patch.places[:, first:first + count]
        if self.is_float and self._arrays.write_windows(view, self.values, self.noise, places,
                                                        self.low, self.high):
            return
        if self.noise is not None and self.is_float \
                and patch.length >= self._arrays.direct:  # copies of windows cost more
            for row, start, noise in zip(view, patch.starts[first:first + count],
                                         patch.noises[first:first + count], strict=True):
                self._scale(row, self.values[start:start + patch.length],
                            self.noise[noise:noise + patch.length])
            return
        step = max(1, self._arrays.chunk // patch.length)
        for begin in range(0, count, step):
            some = view[begin:begin + step]
            starts, noises = places[:, begin:begin + some.shape[0]]
            values = self._arrays.windows(self.values, starts, patch.length)
            if self.noise is None:
                self._arrays.put(some, values)
            elif self.is_float:
                self._scale(some, values, self._arrays.windows(self.noise, noises, patch.length))
            else:
                self._arrays.rotated(some, values, self.noise[noises][:, None], self.low, self.high)

    def _scale(self, out: Any, values: Any, factors: Any) -> None:
        self._arrays.scaled(out, values, factors, self.low, self.high)
