"""A ring of slots for timed calls: every call gets contents of its own, every answer is judged.

Each slot holds the inputs and outputs of one call. Inputs are windows, at random places, of a long
row of values that is drawn once per tensor ("tape") and holds all usable kinds of input. Outputs
hold what an earlier call left there, which is the answer to other contents, or NaN. Both sides get
equal contents, and their outputs are compared with each other, slot by slot.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .inputs import draw
from .slot_memory import POISON, SlotMemory

CHUNK = 1 << 26
"""Number of elements that are copied or compared at a time."""
LARGE = 1 << 18
"""From this number of elements on, contents change slot by slot and in parts."""
PARTS, SCATTER = 8, 256
LEAST_EXTRA = 64
MOST_SHOWN = 4


class Tape:
    """The values of one input tensor, of all kinds; `count` of them in a row are its contents."""

    def __init__(self, arrays: Any, tensor: dict[str, Any], seed: int, kinds: list[str]) -> None:
        self.count = math.prod(tensor["shape"])
        self.fixed = bool(tensor["weight"])
        self.low, self.high = tensor["low"], tensor["high"]
        self.extra = 0 if self.fixed else max(LEAST_EXTRA, self.count // 4)
        self.length = self.count + self.extra
        drawn = [self._drawn(arrays, tensor, seed + 7919 * index, kind)
                 for index, kind in enumerate(kinds[:1] if self.fixed else kinds)]
        self.values = arrays.join(drawn) if len(drawn) > 1 else drawn[0]
        self._arrays = arrays
        self._noise = None if self.fixed else arrays.noise(self.length, seed + 31)

    def _drawn(self, arrays: Any, tensor: dict[str, Any], seed: int, kind: str) -> Any:
        parts: list[Any] = []
        missing = self.length
        while missing > 0:
            part = arrays.to_native(draw(arrays, tensor, seed + len(parts), kind), tensor["dtype"])
            parts.append(part[:missing])
            missing -= self.count
        return arrays.join(parts) if len(parts) > 1 else parts[0]

    def noise_start(self, length: int, rng: random.Random) -> int:
        return rng.randrange(self.length - length + 1)

    def noisy(self, rows: Any, starts: list[int]) -> Any:
        """Return rows of values with the noise that begins at `starts`; weights have none."""
        if self._noise is None:
            return rows
        noise = self._arrays.windows(self._noise, starts, rows.shape[1]) if len(starts) > 1 \
            else self._noise[starts[0]:starts[0] + rows.shape[1]][None]
        return self._arrays.noisy(rows, noise, self.low, self.high)

    def start(self, kind: int, rng: random.Random) -> int:
        """Return the place of a random window of a kind."""
        return 0 if self.fixed else kind * self.length + rng.randrange(self.extra + 1)


@dataclass(frozen=True)
class TapePatch:
    """Values of a tape for every `step`th element of a slot from `at` on, `length` in all.

    Each is multiplied by its own value of the noise tape, from `noise` on.
    """

    start: int
    at: int
    length: int
    noise: int
    step: int = 1


class Ring:
    """The slots of one class on both sides, the contents that they have, and what they answered."""

    def __init__(self, arrays: Any, job: dict[str, Any], tapes: Mapping[str, Tape]) -> None:
        self.arrays, self.tapes, self.slots = arrays, tapes, job["slots"]
        self.kinds = len(job["kinds"])
        self.sides = {side: SlotMemory(arrays, {**job, "tensors": [*job["tensors"], *returned]})
                      for side, returned in job["sides"].items()}
        self.inputs = [tensor for tensor in job["tensors"] if tensor["role"] in ("input", "inout")]
        self._rng = random.Random(job["seed"])
        self._count = 0
        self._blank: list[int] = []
        self._written: dict[str, set[str]] = {side: set() for side in self.sides}
        self._patches: dict[str, list[list[TapePatch]]] = {
            tensor["name"]: [[] for _ in range(self.slots)] for tensor in self.inputs}
        """By tensor and slot, what its contents were put together from, in order."""

    def draw(self, count: int) -> None:
        """Choose new contents for the first `count` slots.

        Large inputs change in one of eight parts, and in single elements everywhere: that makes
        every answer wrong that was right before, and costs an eighth. Every element has a random
        factor, so that no value that a kernel has seen comes again.
        """
        self._count = count
        kinds = [self._rng.randrange(self.kinds) for _ in range(count)]
        for tensor in self.inputs:
            tape, slots = self.tapes[tensor["name"]], self._patches[tensor["name"]]
            if tape.fixed and tensor["role"] == "input" and all(slots[:count]):
                continue  # a weight keeps its contents
            for patches, kind in zip(slots, kinds, strict=False):
                self._patch(tape, kind, patches, whole=tensor["role"] == "inout")
        self._blank = [slot for slot in range(count) if self._rng.random() < 0.5]

    def _patch(self, tape: Tape, kind: int, patches: list[TapePatch], *, whole: bool) -> None:
        start, count, rng = tape.start(kind, self._rng), tape.count, self._rng
        if whole or not patches or count <= LARGE:
            patches[:] = [TapePatch(start, 0, count, tape.noise_start(count, rng))]
            return
        length, at = count // PARTS, rng.randrange(SCATTER)
        single = len(range(at, count, SCATTER))
        patches.append(TapePatch(start + rng.randrange(count - length + 1),
                             rng.randrange(count - length + 1), length,
                             tape.noise_start(length, rng)))
        patches.append(TapePatch(start + rng.randrange(count - single + 1), at, single,
                             tape.noise_start(single, rng), SCATTER))

    def fill(self, name: str) -> None:
        """Write the chosen contents to the slots of a side; half of its outputs become NaN."""
        side = self.sides[name]
        for tensor in self.inputs:
            tape, slots = self.tapes[tensor["name"]], self._patches[tensor["name"]][:self._count]
            rows = side.rows(tensor)
            if tape.fixed and tensor["name"] in self._written[name] and tensor["role"] == "input":
                continue
            if tape.count > LARGE:
                for slot, patches in enumerate(slots):
                    for patch in patches[-2:]:
                        self._write(rows[slot], tape, patch)
                continue
            step = max(1, CHUNK // max(1, tape.count))
            for first in range(0, len(slots), step):
                chosen = [patches[0] for patches in slots[first:first + step]]
                self.arrays.put(rows[first:first + len(chosen)], tape.noisy(
                    self.arrays.windows(tape.values, [each.start for each in chosen], tape.count),
                    [each.noise for each in chosen]))
        if self._count == self.slots:
            self._written[name] = {tensor["name"] for tensor in self.inputs}
        self._spoil(side)
        self.arrays.finish()

    def _write(self, flat: Any, tape: Tape, patch: TapePatch) -> None:
        end = patch.at + patch.length * patch.step
        values = tape.values[patch.start:patch.start + patch.length]
        self.arrays.put(flat[patch.at:end:patch.step], tape.noisy(values[None], [patch.noise])[0])

    def _spoil(self, side: SlotMemory) -> None:
        """Fill the chosen outputs with NaN, but not arguments that are inputs too."""
        for region in side.outputs:
            first, end = region["offset"], region["offset"] + region["nbytes"]
            if region["role"] == "inout" or not self._blank:
                continue
            if end - first < LARGE:
                side.raw[self._blank, first:end] = POISON
                continue
            for slot in self._blank:
                side.raw[slot, first:end] = POISON

    def compare(self, count: int, limits: list[float], last: int) -> dict[str, Any]:
        """Compare both sides' outputs in the first `count` slots.

        `limits` are the allowed relative differences by output. `differs` are the slots with the
        largest excess, worst first; `all` is their number. `damage` says what a side overwrote.
        """
        sides, arrays = self.sides, self.arrays
        worst = [0.0] * count
        for index, limit in enumerate(limits):
            got, want = (sides[side].rows(sides[side].outputs[index])
                         for side in ("candidate", "incumbent"))
            step = max(1, CHUNK // max(1, got.shape[1]))
            for first in range(0, count, step):
                end = min(count, first + step)
                for slot, value in enumerate(arrays.differences(
                        got[first:end], want[first:end], limit), first):
                    excess = value / limit if limit > 0 else math.inf if value else 0.0
                    worst[slot] = max(worst[slot], excess)
        differs = sorted((slot for slot in range(count) if not worst[slot] <= 1),
                         key=lambda slot: -worst[slot])
        return {"differs": differs[:MOST_SHOWN], "all": len(differs),
                "damage": {side: self._damage(side, count, last) for side in sides}}

    def _damage(self, side: str, count: int, last: int) -> str:
        """Return what a side wrote outside of its tensors, or which input in two of the slots.

        These are a random one, and that of the last call, which no later call can restore.
        """
        own, looked_at = self.sides[side], (last, self._rng.randrange(count))
        if damage := own.damage(0, count):
            return damage
        return next((f"overwrote its input {tensor['name']}" for tensor in own.tensors
                     if tensor["role"] == "input"
                     and any(self._is_changed(own, tensor, slot) for slot in looked_at)), "")

    def _is_changed(self, own: SlotMemory, tensor: dict[str, Any], slot: int) -> bool:
        return not self.arrays.equal(own.rows(tensor)[slot], self._contents(tensor, slot))

    def contents(self, slot: int) -> dict[str, Any]:
        """Return by tensor the input values of a slot, as they were given."""
        return {tensor["name"]: self._contents(tensor, slot) for tensor in self.inputs}

    def _contents(self, tensor: dict[str, Any], slot: int) -> Any:
        tape, patches = self.tapes[tensor["name"]], self._patches[tensor["name"]][slot]
        values = self.arrays.copied(tape.values[:tape.count])
        for patch in patches:
            self._write(values, tape, patch)
        return values

    def answers(self, side: str, slot: int) -> list[Any]:
        """Return the outputs of a side in a slot, flattened."""
        own = self.sides[side]
        return [own.rows(output)[slot] for output in own.outputs]

    def close(self) -> None:
        for side in self.sides.values():
            side.close()
