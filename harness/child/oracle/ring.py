"""A ring of slots for timed calls: each call gets its own contents, and each answer is judged.

Each slot holds the inputs and outputs of one call. Inputs are windows, at random positions, of a
long row of values that is drawn once per tensor ("tape") and holds all usable kinds of input.
Before a call its outputs hold NaN, or an earlier call's answer to other contents. Both sides get
equal contents, and their outputs are compared with each other, slot by slot.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

from ..memory.slot_memory import SlotMemory
from .tape import Tape, TapePatch

PARTS, SCATTER = 8, 256
MOST_PATCHES = 64
"""Large contents that consist of this many patches are replaced as a whole."""
COMPARED_EVERY = 8
"""After a timed block, about one in this many slots has its inputs compared between the sides."""
MOST_SHOWN = 4


class Ring:
    """The slots of one config class on both sides, their contents, and the sides' answers."""

    def __init__(self, arrays: Any, job: dict[str, Any], tapes: Mapping[str, Tape]) -> None:
        self.arrays, self.tapes, self.slots = arrays, tapes, job["slots"]
        self.kinds = len(job["kinds"])
        memories = arrays.share(job["slots"] * job["slot_bytes"], len(job["sides"]))
        self.sides = {side: SlotMemory(arrays, {**job, "tensors": [*job["tensors"], *returned]},
                                       shared)
                      for (side, returned), shared in zip(job["sides"].items(), memories,
                                                          strict=True)}
        self.inputs = [tensor for tensor in job["tensors"] if tensor["role"] in ("input", "inout")]
        self._rng = random.Random(job["seed"])
        self._count = self._blank = self._shift = 0
        self._new: dict[str, list[TapePatch]] = {}
        self._samples: dict[str, tuple[int, Any]] = {}
        """By side, the first position and the values of a sample of its outputs, taken after its
        timed block."""
        self._flipped: dict[str, list[slice]] = {}
        """By side, the slots whose inputs are inverted at present."""
        self._patches: dict[str, list[TapePatch]] = {tensor["name"]: [] for tensor in self.inputs}
        """By tensor, the patches that make up the contents of its slots, in order."""

    def draw(self, count: int) -> None:
        """Choose new contents for the first `count` slots; a weight keeps the ones that it has.

        In a large input only an eighth of its length is replaced, and single elements everywhere:
        every earlier answer is then wrong, at an eighth of the cost. Floats are multiplied by
        random factors, so that no value that a kernel has seen comes again. The position of the
        replaced part is drawn anew for each draw and tensor; all slots share it, so that one
        operation writes them all.
        """
        rng, self._count = self._rng, count
        kinds = [rng.randrange(self.kinds) for _ in range(self.slots)]
        for tensor in self.inputs:
            old = self._patches[tensor["name"]]
            new, replaced = self._chosen(tensor, old, kinds, count)
            self._new[tensor["name"]] = new
            old[:] = [*(patch for patch in old if patch.slots > replaced), *new]
        self._blank = rng.randrange(2) if count % 2 == 0 else 0
        self._shift = rng.randrange(max(1, count // 2))

    def _chosen(self, tensor: dict[str, Any], old: list[TapePatch], kinds: list[int],
                count: int) -> tuple[list[TapePatch], int]:
        """Return a tensor's new patches, and in how many slots they replace all earlier patches."""
        tape, rng, in_place = self.tapes[tensor["name"]], self._rng, tensor["role"] == "inout"
        written = old[0].slots if old else 0
        if tape.fixed and not in_place and written >= count:
            return [], 0  # a weight keeps its contents
        if in_place or tape.fixed or tape.whole or tape.count <= self.arrays.large \
                or written < count:
            return [tape.patch(kinds[:count], rng)], count
        if len(old) >= MOST_PATCHES:
            return [tape.patch(kinds[:written], rng)], written
        length, at = tape.count // PARTS, rng.randrange(SCATTER)
        return [tape.patch(kinds[:count], rng, length=length,
                           at=rng.randrange(tape.count - length + 1)),
                tape.patch(kinds[:count], rng, length=len(range(at, tape.count, SCATTER)),
                           at=at, step=SCATTER)], 0

    def fill(self, name: str) -> None:
        """Write the chosen contents to a side's inputs, and NaN or other answers to its outputs."""
        side = self.sides[name]
        for tensor in self.inputs:
            rows = side.rows(tensor)
            for patch in self._new[tensor["name"]]:
                self.tapes[tensor["name"]].write(rows[:patch.slots], patch)
        self._spoil(side)

    def _spoil(self, side: SlotMemory) -> None:
        """Fill every other slot's outputs with NaN; what they held goes to the remaining slots.

        No slot keeps its own answer, of which a part may still be right. In-place arguments stay.
        """
        pairs, shift = self._count // 2, self._shift
        for region in side.outputs:
            if region["role"] == "inout":
                continue
            words = side.words(region)[:self._count]
            blank, kept = words[self._blank::2], words[1 - self._blank::2]
            self.arrays.put(kept[:pairs - shift], blank[shift:pairs])
            self.arrays.put(kept[pairs - shift:], blank[:shift])
            blank[:] = -1

    def flip(self, name: str) -> None:
        """Invert the bits of the inputs in some slots of a side; a second call restores them.

        Between the two calls the side copies its returned values to the slots: a value that is
        read from an input only at that time is wrong.
        """
        if (slots := self._flipped.pop(name, None)) is None:
            begin = self._rng.randrange(1, max(2, self._count))
            end = min(self._count, begin + max(2, self._count // COMPARED_EVERY))
            # slot 0 always: all calls may use its weights
            slots = self._flipped[name] = [slice(0, 1), slice(begin, end)]
        for tensor in self.inputs:
            words = self.sides[name].words(tensor)
            for some in slots if tensor["role"] == "input" else ():
                part = words[some]
                part ^= -1

    def keep_sample(self, name: str, count: int) -> None:
        """Keep a sample of a side's outputs, so that `compare` sees later writes.

        A GPU continues the work that a stopped process has queued.
        """
        at = self._rng.randrange(SCATTER)
        self._samples[name] = at, self._sample(name, count, at)
        self.arrays.finish()

    def _sample(self, name: str, count: int, at: int) -> Any:
        side = self.sides[name]
        every = [side.words(output)[:count] for output in side.outputs]
        return self.arrays.join([words[:, at % max(1, words.shape[1])::SCATTER].reshape(-1)
                                 for words in every])

    def compare(self, count: int, limits: list[float], order: list[int]) -> dict[str, Any]:
        """Compare both sides' outputs in the slots that were called, and the inputs of some slots.

        `order` are the called slots, all among the first `count`. The inputs of the last one are
        always compared, since no later call can have restored them. `limits` are the allowed
        relative differences by output. In the answer `differs` are the slots with the largest
        excess, worst first; `excess` is text, as it may be infinite; `damage` says what a side
        overwrote.
        """
        arrays, sides = self.arrays, self.sides
        outputs = [(*(sides[side].rows(sides[side].outputs[index])[:count]
                      for side in ("candidate", "incumbent")), limit)
                   for index, limit in enumerate(limits)]
        outputs = [each for each in outputs if each[1].shape[1]]
        guards = [(name, guard) for name, side in sides.items() for guard in side.guards(0, count)]
        inputs = [(tensor, slots) for tensor in self.inputs if tensor["role"] == "input"
                  for slots in self._compared_slots(count, order[-1])]
        samples, self._samples = self._samples, {}
        values = iter(arrays.fetched([  # one wait for the device, after all work is queued
            *(arrays.excess(*each) for each in outputs), *(guard for _, guard in guards),
            *(arrays.differ(*(side.words(tensor)[slots] for side in sides.values()))
              for tensor, slots in inputs),
            *(arrays.differ(before, self._sample(name, count, at))
              for name, (at, before) in samples.items())]))
        worst = dict.fromkeys(order, 0.0)
        for got, want, limit in outputs:
            self._judge_rows(got, want, limit, next(values), worst)
        written = {name for name, _ in guards if next(values)[0]}
        changed = [(tensor, range(count)[slots]) for tensor, slots in inputs if next(values)[0]]
        late = {name: "wrote outputs after its time had ended"
                for name in samples if next(values)[0]}
        differs = sorted((slot for slot in order if not worst[slot] <= 1),
                         key=lambda slot: -worst[slot])
        shown = differs[:MOST_SHOWN]
        return {"differs": shown, "excess": [str(worst[slot]) for slot in shown], "damage": {
            name: sides[name].damage(0, count) if name in written
            else late.get(name) or self._changed(name, changed) for name in sides}}

    def _compared_slots(self, count: int, last: int) -> list[slice]:
        """Return slices of a random run of slots, which may wrap around, and of the slot `last`."""
        begin, number = self._rng.randrange(count), max(2, -(-count // COMPARED_EVERY))
        runs = [slice(begin, min(count, begin + number)), slice(0, begin + number - count)]
        return [*runs[:1 + (begin + number > count)], slice(last, last + 1)]

    def _judge_rows(self, got: Any, want: Any, limit: float, bounds: list[float],
                    worst: dict[int, float]) -> None:
        """Raise the values in `worst` to the exact excess, where a slot's bound exceeds 1."""
        slots = [slot for slot, bound in enumerate(bounds) if slot in worst and not bound <= 1]
        step = max(1, self.arrays.chunk // want.shape[1])
        for first in range(0, len(slots), step):
            some = slots[first:first + step]
            rows = slice(some[0], some[-1] + 1) if len(some) == some[-1] + 1 - some[0] else some
            for slot, value in zip(some, self.arrays.differences(got[rows], want[rows], limit),
                                   strict=True):
                excess = value / limit if limit > 0 else math.inf if value else 0.0
                worst[slot] = max(worst[slot], excess)

    def _changed(self, name: str, suspects: list[tuple[dict[str, Any], range]]) -> str:
        """Return which of the `suspects`, inputs that differ between the sides, a side overwrote.

        "" if it overwrote none of them.
        """
        return next((damage for tensor, slots in suspects for slot in slots
                     if (damage := self.overwritten(name, slot, {
                         tensor["name"]: self._contents(tensor, slot)}))), "")

    def overwritten(self, name: str, slot: int, contents: Mapping[str, Any]) -> str:
        """Return as text which input a side overwrote in a slot, given the contents, or ""."""
        rows = self.sides[name].rows
        return next((f"overwrote its input {tensor['name']}" for tensor in self.inputs
                     if tensor["role"] == "input" and tensor["name"] in contents and not
                     self.arrays.equal(rows(tensor)[slot], contents[tensor["name"]])), "")

    def contents(self, slot: int) -> dict[str, Any]:
        """Return by tensor the input values that were written to a slot."""
        return {tensor["name"]: self._contents(tensor, slot) for tensor in self.inputs}

    def _contents(self, tensor: dict[str, Any], slot: int) -> Any:
        tape = self.tapes[tensor["name"]]
        values = self.arrays.empty(tape.count, tape.values)
        for patch in self._patches[tensor["name"]]:
            if slot < patch.slots:
                tape.write(values[None], patch, slot)
        return values

    def answers(self, side: str, slot: int) -> list[Any]:
        """Return the outputs of a side in a slot, flattened."""
        memory = self.sides[side]
        return [memory.rows(output)[slot] for output in memory.outputs]

    def close(self) -> None:
        for side in self.sides.values():
            side.close()
