"""The values of one input tensor, from which the contents of its slots are taken.

A tape is a long vector that is drawn once: the values of each usable kind of input, one kind after
another. The contents of a slot are a window of the tape at a random position, changed by a window
of a second vector, the noise. Kinds of few distinct values get further noise when the tape is
drawn. So even a few elements depend on two independent positions, and neither a float nor a short
row of values repeats.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .arrays import int_bounds
from .inputs import OF_ROWS, draw, two_values

LEAST_EXTRA = 64
WHOLE = 16
"""The contents of a tensor with a structure begin where the structure does on its tape: at one of
at least WHOLE positions for each kind. They are replaced only as a whole."""
FEW = 1 << 14
"""On such a tape each kind has about FEW elements more than the contents of one slot, or a quarter
of these if that is more, so that short contents seldom repeat."""
MORE_NOISE = 4096
"""Elements that the noise has beyond the values, so that short inputs have many contents too."""
ALIKE = "constant", "tied"
"""Kinds of few distinct floats: unless the tape itself has noise, only the noise of a slot would
distinguish rows."""
STEPS, OWN_STEPS, MOST_STEP = 8, 2, 1 << 15
"""One in STEPS integers of a window, and one in OWN_STEPS of the tape, is rotated within its bounds
by its own step, which is below MOST_STEP."""
PRIME = 1_000_003
"""All integers of a slot are rotated by one step, a multiple of this."""
POWERS, MOST_VALUES = 64, 1 << 26
"""A permutation's values are first multiplied, within their bounds, by one of the first powers of
PRIME, where that is exact in float64: it has no noise, and rotation alone would keep its gaps."""


@dataclass(frozen=True)
class TapePatch:
    """New values for every `step`th element from `at` on, `length` in all, in the first slots.

    `starts` and `noises` are positions in the tape and in its noise, one for each slot; `places`
    holds both, as an array on the device.
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

    def changed_elements(self, rows: Any) -> Any:
        """Return the elements that the patch changes; each row holds the values of one slot."""
        return rows[:, self.at:self.at + (self.length - 1) * self.step + 1:self.step]


class Tape:
    """The values of one input tensor; the contents of a slot are `count` consecutive ones."""

    def __init__(self, arrays: Any, tensor: dict[str, Any], seed: int, kinds: list[str]) -> None:
        self.count = math.prod(tensor["shape"])
        self.fixed = bool(tensor["weight"] or tensor.get("data"))
        structure = tensor.get("structure")
        self.whole = bool(structure)
        self.is_float, self.is_log = "float" in tensor["dtype"], structure == OF_ROWS[1]
        self.low, self.high = tensor["low"], tensor["high"]
        first, end = int_bounds(self.low, self.high)
        self.bounds = (first, max(first + 1, end)) if structure != "two_valued" else (0, 2)
        self.step = tensor["shape"][-1] if structure in OF_ROWS else \
            1 if structure in (None, "two_valued") else self.count
        """Elements from one possible beginning of contents to the next."""
        self.of_rows, self.scales = structure in OF_ROWS, structure is None and self.is_float
        self.rotates = structure in (None, "distinct") and not self.is_float
        places = max(LEAST_EXTRA if structure is None else FEW // self.step,
                     WHOLE - 1 if self.step > 1 else 0, self.count // self.step // 4)
        self.length = self.count + (0 if self.fixed else places * self.step)
        self.noise_length = MORE_NOISE + self.length
        self._arrays = arrays
        kinds = kinds[:1] if self.fixed else kinds
        self.values = arrays.empty(self.length * len(kinds), arrays.to_native(
            arrays.numbers_below(1), tensor["dtype"]))
        self.ends = arrays.as_wide(arrays.to_native(
            two_values(arrays, tensor, arrays.numbers_below(2) > 0), tensor["dtype"])) \
            if structure == "two_valued" else None
        changes = not self.fixed and structure in (None, "two_valued", *OF_ROWS)
        self.noise: Any = self._noise(self.noise_length, seed + 31) if changes else None
        for index, kind in enumerate(kinds):
            self._draw(tensor, seed + 7919 * index, kind, index * self.length)

    def _draw(self, tensor: dict[str, Any], seed: int, kind: str, begin: int) -> None:
        """Draw the values of one kind, in parts: memory may not hold a large tape twice."""
        arrays, end = self._arrays, begin + self.length
        for number, first in enumerate(range(begin, end, self.count)):
            drawn = draw(arrays, tensor, seed + number, kind)
            part = self.values[first:min(end, first + self.count)]
            arrays.put(part, arrays.to_native(drawn, tensor["dtype"])[:part.shape[0]])
            if self.noise is not None and (kind in ALIKE or not self.scales):
                self._change(part[None], part[None], self._noise(
                    part.shape[0], seed + number + 37, OWN_STEPS)[None], arrays.places([[0]]))

    def _noise(self, count: int, seed: int, each: int = STEPS) -> Any:
        """Return factors for floats, else integer steps of which about one in `each` is not 0."""
        arrays = self._arrays
        if self.is_float and self.ends is None:
            return arrays.noise(count, seed, self.values)
        first, end = self.bounds
        share = arrays.uniform([count], arrays.generator(seed))
        steps = arrays.floor(share * each * min(MOST_STEP, end - first))
        return arrays.to_native(arrays.where(share * each < 1, steps, 0.0),
                                "uint8" if end - first <= 256 else "int16")

    def patch(self, kinds: Sequence[int], rng: random.Random, *, at: int = 0,
              length: int | None = None, step: int = 1) -> TapePatch:
        """Choose new values at random, of the given kind for each slot.

        Without a `length` they replace all elements.
        """
        length = self.count if length is None else length
        places, noises = self.length - length + 1, self.noise_length - length + 1
        starts = [0 if self.fixed else
                  kind * self.length + rng.randrange(0, places, self.step) for kind in kinds]
        offsets = [0 if self.fixed else rng.randrange(noises) for _ in kinds]
        return TapePatch(at, length, step, starts, offsets, self._arrays.places([starts, offsets]))

    def write(self, rows: Any, patch: TapePatch, first: int = 0) -> None:
        """Write a patch to `rows`, each the values of one slot; the first row is slot `first`."""
        view, count = patch.changed_elements(rows), rows.shape[0]
        if self.fixed or not patch.length:
            self._arrays.put(view, self.values[:patch.length][None])
            return
        places = patch.places[:, first:first + count]
        if self.scales:
            if self._arrays.write_windows(view, self.values, self.noise, places, self.low,
                                          self.high):
                return
            if patch.length >= self._arrays.direct:  # copies of windows cost more
                for row, start, begin in zip(view, patch.starts[first:first + count],
                                             patch.noises[first:first + count], strict=True):
                    self._change(row, self.values[start:start + patch.length],
                                 self.noise[begin:begin + patch.length])
                return
        for some, (starts, noises), part in self._chunks(view, places):
            values, noise = (None if row is None else self._arrays.windows(row, at, part)
                             for row, at in ((self.values, starts), (self.noise, noises)))
            self._change(some, values, noise, noises[:, None])

    def _chunks(self, view: Any, places: Any) -> Iterator[tuple[Any, Any, int]]:
        """Yield parts of `view`, the positions of their values and noise, and their row length.

        A part holds the values of whole slots. If those of one slot are too many and the tensor
        has a structure of rows, a part holds some whole rows of the tensor's last dimension.
        """
        (count, length), most = view.shape, self._arrays.chunk
        step = max(1, most // length)
        part = length if not self.of_rows else min(length, max(1, most // self.step) * self.step)
        for begin in range(0, count, step):
            for at in range(0, length, part):
                some = view[begin:begin + step, at:at + part]
                yield some, places[:, begin:begin + some.shape[0]] + at, some.shape[1]

    def _change(self, out: Any, values: Any, noise: Any, step: Any = 0) -> None:
        """Write values changed by noise to `out`; `step` * PRIME rotates all integers alike."""
        arrays = self._arrays
        if self.rotates:
            first, many = self.bounds[0], self.bounds[1] - self.bounds[0]
            if noise is None and many < MOST_VALUES and many % PRIME:  # else not one to one
                powers = arrays.places([[pow(PRIME, power, many) for power in range(POWERS)]])
                arrays.put(out, (arrays.as_wide(values) - first) * powers[0][step % POWERS] % many
                           + first)
                values = out
            arrays.rotated(out, values, noise, step * PRIME, *self.bounds)
        elif self.scales:
            arrays.scaled(out, values, noise, self.low, self.high)
        elif self.ends is not None:
            low, high = self.ends
            arrays.put(out, arrays.where((arrays.as_wide(values) == low) == (noise > 0), high, low))
        elif self.of_rows:
            shares, factors = ((part if part.dtype.itemsize >= 4 else arrays.as_wide(part)
                                ).reshape(-1, self.step) for part in (values, noise))
            shares = (arrays.exp(shares) if self.is_log else shares) * factors
            shares /= shares.sum(-1)[:, None]
            arrays.put(out, (arrays.log(shares) if self.is_log else shares).reshape(out.shape))
        else:
            arrays.put(out, values)
