"""Simulates training steps, to see what a kernel recognises from one call to the next.

In a step the weights are the same objects with updated contents and version; every other tensor is
new. The kernel is called twice, and once more after another update of the weights. A call that does
less work than one on entirely new tensors has recognised something: in the second call the weights,
which did not change, and in the others data that never repeats in real use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .launches import Launches, profiled

WARM = 2


class CallWork:
    """Counts a call's kernel launches and the torch functions that it calls."""

    def __init__(self) -> None:
        self._launches = Launches()
        self._torch = 0

    def count(self, call: Callable[[], Any]) -> int:
        self._torch = 0
        with self._launches.counted(), profiled(self._entered):
            call()
        return self._torch + self._launches.seen

    def _entered(self, _: Any, event: str, function: Any) -> None:
        if event == "c_call" and (_is_torch(getattr(function, "__module__", None)) or _is_torch(
                type(getattr(function, "__self__", None)).__module__)):
            self._torch += 1


def _is_torch(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in ("torch", "triton")


class Steps:
    """The arguments of a case: its weights stay the same objects, all else is new in each call."""

    def __init__(self, kept: Any, weights: list[str]) -> None:
        self._kept = kept
        self._weights = [buffer if tensor["name"] in weights and buffer is not None
                         and buffer.role == "input" else None
                         for tensor, buffer in zip(kept.tensors, kept.buffers.buffers, strict=True)]
        self._calls = 0
        self.held: list[Any] = []

    def call(self, *, hold: bool = False) -> None:
        """Call on new activations with new contents; `hold` keeps their addresses from reuse."""
        fresh = self._kept.fresh()
        self._calls += 1
        for index, (buffer, weight) in enumerate(zip(fresh.buffers, self._weights, strict=True)):
            if weight is not None:
                fresh.buffers[index], fresh.arguments[index] = weight, weight.tensor
            elif buffer is not None and not buffer.output:
                _roll(buffer, self._calls)
        if hold:
            self.held.append(fresh)
        self._kept.kernel.call(fresh)

    def next(self) -> None:
        """Update the weights as an optimizer does: in place, with their version."""
        for weight in self._weights:
            if weight is not None:
                _roll(weight, 1)


def _roll(buffer: Any, by: int) -> None:
    """Roll a tensor by some positions, which also increments its version."""
    flat = buffer.stored.view(-1)
    if flat.dtype.itemsize == 1:
        flat = flat.view(sys.modules["torch"].uint8)
    flat.copy_(flat.roll(by))


def trace(kept: Any, weights: list[str], steps: int) -> list[dict[str, int]]:
    """Return per step how often weights were recognised, and how often other tensors were."""
    work, sequence = CallWork(), Steps(kept, weights)
    for _ in range(WARM):  # compilation and one-time setup
        sequence.next()
        sequence.call(hold=True)
    sequence.next()
    cold = work.count(lambda: sequence.call(hold=True))
    sequence.held.clear()
    seen = []
    for _ in range(steps):
        sequence.next()
        first, second = work.count(sequence.call), work.count(sequence.call)
        sequence.next()
        seen.append((first, second, work.count(sequence.call)))
    cold = max(cold, *(first for first, _, _ in seen))
    return [{"step": number + 1, "weight_hits": int(second < cold and last >= cold),
             "other_hits": int(first < cold) + int(last < cold)}
            for number, (first, second, last) in enumerate(seen)]
