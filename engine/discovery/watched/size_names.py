"""Names the sizes of observed calls: one that varies is a symbol, a constant one a number."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Sizes = tuple[int, ...]
"""The values of one size in every call."""
Dimension = int | str
SMALL = 8
"""With a single call, sizes up to this are numbers, such as the kernel width of a convolution.

A size may also be a symbol plus or minus at most this."""
MOST_FACTOR = 64
"""A size may be a symbol times or divided by at most this."""
USUAL = {1: ("n",), 2: ("rows", "cols"), 3: ("batch", "rows", "cols"),
         4: ("batch", "heads", "rows", "cols")}
RESERVED = ("calls",)


@dataclass
class SizeNames:
    """The symbols found so far, with their values in each of the calls.

    `names` are those that the source gives to sizes, by (parameter, axis).
    """

    names: Mapping[tuple[str, int], str]
    symbols: dict[str, Sizes] = field(default_factory=dict)
    _known: dict[Sizes, Dimension] = field(default_factory=dict)

    def shape(self, name: str, shapes: Sequence[Sequence[int]]) -> tuple[Dimension, ...]:
        """Return a tensor's shape from its shape in each call."""
        count = len(shapes[0])
        return tuple(self._size(tuple(shape[axis] for shape in shapes), self._name(
            name, axis, count)) for axis in range(count))

    def number(self, name: str, values: Sizes) -> Dimension:
        """Return a whole-number argument as a number, a symbol or an expression."""
        if expression := self._expression(values):
            return expression
        return values[0] if len(set(values)) == 1 else self._new(name, values)

    def matching(self, values: Sizes) -> Dimension | None:
        """Return a size as a number or in the symbols known so far, None if neither is possible."""
        if expression := self._expression(values):
            return expression
        return values[0] if len(set(values)) == 1 else None

    def values(self, call: int) -> dict[str, int]:
        """Return the symbols' values in one call."""
        return {name: sizes[call] for name, sizes in self.symbols.items()}

    def _size(self, values: Sizes, name: str) -> Dimension:
        varies = len(set(values)) > 1
        if not varies and (len(values) > 1 or values[0] <= SMALL):
            return values[0]
        return self._expression(values) or self._new(name, values)

    def _expression(self, values: Sizes) -> Dimension | None:
        """Return an expression over the symbols that has these values in every call."""
        if values in self._known:
            return self._known[values]
        if len(set(values)) == 1 and (len(values) > 1 or values[0] <= MOST_FACTOR):
            return None
        single = len(values) == 1
        for count in (2, 3, 4):
            for names in itertools.combinations(self.symbols, count):
                product = tuple(math.prod(factors) for factors in zip(
                    *(self.symbols[name] for name in names), strict=True))
                if product == values:
                    return self._keep(values, "*".join(names))
                if not single and (factor := _factor(values, product)):
                    return self._keep(values, f"{factor}*{'*'.join(names)}")
        for name, sizes in () if single else self.symbols.items():
            if factor := _factor(values, sizes):
                return self._keep(values, f"{factor}*{name}")
            if factor := _factor(sizes, values):
                return self._keep(values, f"{name}//{factor}")
            steps = {value - size for value, size in zip(values, sizes, strict=True)}
            if len(steps) == 1 and abs(step := steps.pop()) <= SMALL:
                return self._keep(values, f"{name}{step:+d}")
        return None

    def _keep(self, values: Sizes, expression: str) -> str:
        self._known[values] = expression
        return expression

    def _new(self, name: str, values: Sizes) -> str:
        name = "".join(letter if letter.isalnum() else "_" for letter in name) or "n"
        unused = (each for each in itertools.chain(
            [name], (f"{name}_{number}" for number in itertools.count(2)))
            if each not in self.symbols and each not in RESERVED)
        name = next(unused)
        self.symbols[name] = self._known[values] = values  # type: ignore[assignment]
        return self._keep(values, name)

    def _name(self, tensor: str, axis: int, count: int) -> str:
        for at in (axis, axis - count):
            if (tensor, at) in self.names:
                return self.names[tensor, at]
        usual = USUAL.get(count)
        return usual[axis] if usual and usual[axis] not in self.symbols else f"{tensor}_{axis}"


def _factor(values: Sizes, sizes: Sizes) -> int:
    """Return the whole number by which every size is multiplied in `values`, 0 if none is."""
    factors = {value // size if size and value % size == 0 else 0
               for value, size in zip(values, sizes, strict=True)}
    return factor if len(factors) == 1 and 1 < (factor := factors.pop()) <= MOST_FACTOR else 0
