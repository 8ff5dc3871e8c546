"""What is in the inputs while calls are timed: elements are moved, so that no answer is old.

A kernel that remembers results by content, shape or address is right only for contents that it
has seen. Before every block elements of the inputs are copied over others, by moves drawn here; the
oracle is told where each element came from, and judges what the last block left. Moving keeps
every value one that was drawn for its tensor.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping

from harness.case import Case

Move = tuple[int, int, int]
"""(argument, to, from): one element of an argument, by its index in the flattened tensor."""

MOVES = 2


class InputMutation:
    """Draws moves for one case of one runner, and knows what they lead to, copy by copy."""

    def __init__(self, case: Case, rng: random.Random) -> None:
        self._rng = rng
        self._tensors = list(enumerate(case.tensors))
        self._sizes = {index: math.prod(tensor["shape"]) for index, tensor in self._tensors
                       if tensor["role"] == "input" and not tensor.get("weight")
                       and math.prod(tensor["shape"]) > 1}
        self._from: dict[int, dict[int, dict[int, int]]] = {}
        self.copy = 0
        """The copy that was changed last; the one to judge."""

    def draw(self, copies: int) -> list[Move]:
        """Return the next moves, within a copy that is drawn too."""
        self.copy = self._rng.randrange(copies)
        moves = [self._move() for _ in range(MOVES)] if self._sizes else []
        self.note(self.copy, moves)
        return moves

    def chain(self, length: int) -> list[Move]:
        """Return moves of which each makes contents that were not there before.

        Every step pulls the next of a row of values one place on, so that not even the sum of all
        values comes back: a memory may go by such a thing.
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
        """Follow moves that a runner makes."""
        came_from = self._from.setdefault(copy, {})
        for index, to, source in moves:
            one = came_from.setdefault(index, {})
            one[to] = one.get(source, source)

    def exchanged(self, copy: int) -> Mapping[str, Mapping[int, int]]:
        """Return by tensor which original element stands at which changed place."""
        return {self._tensors[index][1]["name"]: one
                for index, one in self._from.get(copy, {}).items()}

    def _move(self) -> Move:
        index = self._rng.choice(sorted(self._sizes))
        to, source = self._rng.sample(range(self._sizes[index]), 2)
        return index, to, source
