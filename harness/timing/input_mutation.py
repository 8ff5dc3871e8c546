"""Change the inputs between timed blocks, so that no remembered answer is right.

A kernel that remembers results by content, shape or address is right only for contents that it has
seen. Before every block, elements of the inputs are copied over others by moves drawn here. The
oracle gets the origin of each element and judges the outputs of the last block. Moves keep all
values within those drawn for their tensor.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping

from harness.case import Case

Move = tuple[int, int, int]
"""(argument, to, from): indices of elements are those in the flattened tensor."""

MOVES = 2


class InputMutation:
    """Draws moves for one case of one runner, and tracks the contents of each copy."""

    def __init__(self, case: Case, rng: random.Random) -> None:
        self._rng = rng
        self._tensors = list(enumerate(case.tensors))
        self._sizes = {index: math.prod(tensor["shape"]) for index, tensor in self._tensors
                       if tensor["role"] == "input" and not tensor.get("weight")
                       and math.prod(tensor["shape"]) > 1}
        self._from: dict[int, dict[int, dict[int, int]]] = {}
        self.copy = 0
        """The copy that was changed last, whose outputs are judged."""

    def draw(self, copies: int) -> list[Move]:
        """Return the next moves, all in one copy, which is drawn as well."""
        self.copy = self._rng.randrange(copies)
        moves = [self._move() for _ in range(MOVES)] if self._sizes else []
        self.note(self.copy, moves)
        return moves

    def chain(self, length: int) -> list[Move]:
        """Return moves each of which makes new contents.

        Each step shifts the next of a row of values by one place, so that not even the sum of all
        values recurs: a kernel may remember results by such a sum.
        """
        if not self._sizes:
            return []
        indices = sorted(self._sizes)
        each = -(-length // len(indices)) + 1
        rows = {index: self._rng.sample(range(size), min(size, each))
                for index, size in self._sizes.items()}
        moves = []
        for step in range(length):
            index = indices[step % len(indices)]
            row = rows[index]
            at = step // len(indices)
            moves.append((index, row[at % len(row)], row[(at + 1) % len(row)]))
        return moves

    def note(self, copy: int, moves: Iterable[Move]) -> None:
        """Record moves that a runner makes."""
        origins = self._from.setdefault(copy, {})
        for index, to, source in moves:
            of_tensor = origins.setdefault(index, {})
            of_tensor[to] = of_tensor.get(source, source)

    def exchanged(self, copy: int) -> Mapping[str, Mapping[int, int]]:
        """Return, by tensor name, the original index of the element at each changed index."""
        return {self._tensors[index][1]["name"]: origins
                for index, origins in self._from.get(copy, {}).items()}

    def _move(self) -> Move:
        index = self._rng.choice(sorted(self._sizes))
        to, source = self._rng.sample(range(self._sizes[index]), 2)
        return index, to, source
