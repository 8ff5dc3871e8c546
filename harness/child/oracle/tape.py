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

from .inputs import OF_ROWS, draw

LEAST_EXTRA = 64
WHOLE = 16
"""Contents of each kind, or rows beyond them, on the tape of a structured tensor: its contents are
only replaced as a whole, without noise, and begin where its structure does."""
FEW = 1 << 14
"""Elements beyond the contents on such a tape, so that short ones seldom come again."""
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
        structure = tensor.get("structure")
        self.whole = bool(structure)
        self.low, self.high = tensor["low"], tensor["high"]
        self.step = tensor["shape"][-1] if structure in OF_ROWS else \
            1 if structure in (None, "two_valued") else self.count
        """Elements from one possible beginning of contents to the next."""
        self.turns = structure in OF_ROWS and not self.fixed
        """Whether rows are turned by a random number of elements, in place of noise."""
        places = max(LEAST_EXTRA if structure is None else FEW // self.step,
                     WHOLE - 1 if self.step > 1 else 0, self.count // self.step // 4)
        self.length = self.count + (0 if self.fixed else places * self.step)
        kinds = kinds[:1] if self.fixed else kinds
        self.values = arrays.empty(self.length * len(kinds), arrays.to_native(
            arrays.counted(1), tensor["dtype"]))
        self._arrays = arrays
        for index, kind in enumerate(kinds):
            self._draw(tensor, seed + 7919 * index, kind, index * self.length)
        self.is_float = "float" in tensor["dtype"]
        self.noise_length = MORE_NOISE + (self.length if self.is_float else 0)
        self.noise = None if self.fixed or self.whole else arrays.noise(
            self.noise_length, seed + 31, self.values, self.low, self.high)

    def _draw(self, tensor: dict[str, Any], seed: int, kind: str, begin: int) -> None:
        """Draw the values of one kind; a large tape has no room for a copy of them."""
        arrays, end = self._arrays, begin + self.length
        for number, first in enumerate(range(begin, end, self.count)):
            drawn = draw(arrays, tensor, seed + number, kind)
            part = self.values[first:min(end, first + self.count)]
            arrays.put(part, arrays.to_native(drawn, tensor["dtype"])[:part.shape[0]])

    def patch(self, kinds: Sequence[int], rng: random.Random, *, at: int = 0,
              length: int | None = None, step: int = 1) -> TapePatch:
        """Choose new values at random, of one kind a slot; all elements without a `length`."""
        length = self.count if length is None else length
        places = self.length - length + 1
        noises = self.step if self.turns else \
            self.noise_length - (length if self.is_float else 1) + 1
        starts = [0 if self.fixed else
                  kind * self.length + rng.randrange(0, places, self.step) for kind in kinds]
        offsets = [0 if self.fixed else rng.randrange(noises) for _ in kinds]
        return TapePatch(at, length, step, starts, offsets, self._arrays.places([starts, offsets]))

    def write(self, rows: Any, patch: TapePatch, first: int = 0) -> None:
        """Write a patch to rows with the values of a slot each; they begin with slot `first`."""
        view, count = patch.of(rows), rows.shape[0]
        if self.fixed or not patch.length:
            self._arrays.put(view, self.values[:patch.length][None])
            return
        places = patch.places[:, first:first + count]
        if self.turns:
            for row, start, turn in zip(view, patch.starts[first:first + count],
                                        patch.noises[first:first + count], strict=True):
                self._turn(row.reshape(-1, self.step), start, turn)
            return
        if self.is_float and self.noise is not None:
            if self._arrays.write_windows(view, self.values, self.noise, places, self.low,
                                          self.high):
                return
            if patch.length >= self._arrays.direct:  # copies of windows cost more
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

    def _turn(self, out: Any, start: int, turn: int) -> None:
        values = self.values[start:start + self.count].reshape(-1, self.step)
        self._arrays.put(out[:, :self.step - turn], values[:, turn:])
        self._arrays.put(out[:, self.step - turn:], values[:, :turn])

    def _scale(self, out: Any, values: Any, factors: Any) -> None:
        self._arrays.scaled(out, values, factors, self.low, self.high)
