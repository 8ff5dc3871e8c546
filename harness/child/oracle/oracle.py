"""Draws secret inputs and keeps the expected outputs, in a process that no candidate can reach.

Talks JSON lines over a socket. The reference is the baseline's: a Python function over float64
arrays (numpy for C targets, torch for Python and Triton) that takes the inputs by name.
Standard library, plus numpy or torch.
"""

from __future__ import annotations

import math
from typing import Any

from ..channel import Channel
from ..one_line import one_line
from . import versions
from .contents import Contents
from .inputs import SPIKED, draw
from .reference import BaselineReference, Reference
from .ring import Ring
from .slot_memory import SlotMemory
from .tape import Tape


class NoAnswer(ValueError):
    """The reference has no usable answer for these inputs."""


class OracleProgram:
    """The reference function, and the cases that are drawn and not dropped yet."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.arrays = open_arrays(job)
        self.reference: Any = BaselineReference(self.arrays, job["baseline"]) \
            if job["baseline"] else Reference(self.arrays, job)
        self.cases: dict[str, Contents] = {}
        self.tapes: dict[tuple[str, str], Tape] = {}
        self.rings: dict[str, Ring] = {}
        self.memories: dict[str, SlotMemory] = {}

    def make(self, job: dict[str, Any]) -> dict[str, Any]:
        """Draw one case's inputs; compute and keep the expected outputs.

        `skip` is the reason if the reference has no answer and the case may be skipped.
        """
        case = Contents(self.arrays, job["tensors"], partial=job["distribution"] in SPIKED)
        for index, tensor in enumerate(job["tensors"]):
            if tensor["role"] not in ("scalar", "output"):
                drawn = draw(self.arrays, tensor, job["seed"] + index * 7919, job["distribution"])
                case.values[tensor["name"]] = self.arrays.to_native(drawn, tensor["dtype"])
        try:
            values = self._expect(case, job["dtypes"])
        except Exception as error:
            if not job["may_skip"]:
                raise
            return {"skip": one_line(error), "controls": [], "shapes": []}
        self.cases[job["case"]] = case
        return {"skip": "", "controls": [] if case.partial else
                self._controls(case, values, job["first"]),
                "shapes": [self.arrays.shape(value) for value in case.expected]}

    def _expect(self, case: Contents, dtypes: list[str]) -> dict[str, Any]:
        """Compute and keep a case's expected outputs; return the arguments by name."""
        arrays, values = self.arrays, self._values(case)
        case.expected, case.dtypes = self._call(case, values), dtypes
        outputs = [t for t in case.tensors if t["role"] in ("output", "inout")]
        for index, value in enumerate(case.expected):
            name = outputs[index]["name"] if index < len(outputs) else "the returned value"
            if not (arrays.some_finite if case.partial else arrays.finite)(value):
                raise NoAnswer("the reference gave values that are not finite")
            if index < len(outputs) and arrays.shape(value) != outputs[index]["shape"]:
                raise ValueError(f"the reference gave shape {arrays.shape(value)} "
                                 f"for {name}, declared {outputs[index]['shape']}")
            dtype = dtypes[index] if index < len(dtypes) else ""
            if "float" in dtype and case.partial:
                case.expected[index] = arrays.where(abs(value) > arrays.largest(dtype), math.inf,
                                                    value)
            elif "float" in dtype and arrays.peak(value) > arrays.largest(dtype):
                raise NoAnswer(f"the reference gave values that are too large for {dtype} "
                               f"in {name}")
        return values

    def _values(self, case: Contents) -> dict[str, Any]:
        return dict(self.reference.values(case.tensors, case.values))

    def _call(self, case: Contents, values: dict[str, Any]) -> list[Any]:
        return [self.arrays.as_wide(value)
                for value in self.reference.results(case.tensors, values)]

    def _controls(self, case: Contents, values: dict[str, Any],
                  first: str) -> list[dict[str, Any]]:
        """Return the relative error of each trivial answer: [output, name, relative error]."""
        arrays, errors = self.arrays, []
        inputs = [arrays.as_wide(values[name]) for name in case.values]
        other = self.cases[first].expected if first in self.cases else []
        for index, want in enumerate(case.expected):
            fakes = {"zeros": arrays.full(want, 0.0), "half of the answer": want / 2}
            if math.prod(arrays.shape(want)) > 1:  # of one element, the mean is the answer itself
                fakes["constant"] = arrays.full(want, float(want.mean()))
            for value in inputs:
                if arrays.shape(value) == arrays.shape(want):
                    fakes["copied input"] = value
            if index < len(other):
                fakes["the answer to other inputs"] = other[index]
            errors += [{"output": index, "name": name, "relative": arrays.errors(fake, want)[1]}
                       for name, fake in fakes.items()]
        return errors

    def exchange(self, job: dict[str, Any]) -> dict[str, Any]:
        """Move elements within a case's inputs and compute the expected outputs again."""
        case = self.cases[job["case"]]
        for tensor in case.tensors:
            if tensor["name"] in job["moves"]:
                case.move(tensor, *job["moves"][tensor["name"]])
        self._expect(case, case.dtypes)
        return {}

    def sensitivity(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return for each output its typical relative change when inputs change by `part`."""
        case, arrays = self.cases[job["case"]], self.arrays
        generator = arrays.generator(job["seed"])
        values = self._values(case)
        for name in case.values:
            values[name] = arrays.nudged(values[name], job["part"], generator)
        return {"typical": [arrays.typical(near, want) for near, want in
                            zip(self._call(case, values), case.expected, strict=True)]}

    def open_memory(self, job: dict[str, Any]) -> dict[str, Any]:
        """Make memory for one runner; `share` is its descriptor."""
        memory = self.memories[job["memory"]] = SlotMemory(self.arrays, job)
        return {"memory": memory.description, "share": [memory.memory.fd]}

    def place(self, job: dict[str, Any]) -> dict[str, Any]:
        """Write a case's inputs to a slot; `reverse` reverses the order of their elements."""
        self.memories[job["memory"]].place(job["slot"], self.cases[job["case"]].values,
                                           reverse=job["reverse"])
        return {}

    def judge(self, job: dict[str, Any]) -> dict[str, Any]:
        """Compare the outputs in a slot with a case's expected values, and inputs with its own.

        `returned` says where the runner put what the kernel returned. Outputs with the digests in
        `known` were compared before and are skipped.
        """
        case, memory, slot = self.cases[job["case"]], self.memories[job["memory"]], job["slot"]
        got = [memory.view(tensor, slot) for tensor in memory.outputs]
        got += [memory.returned(region, slot) for region in job["returned"]]
        if len(got) != len(case.expected):
            raise ValueError(f"{len(got)} outputs, expected {len(case.expected)}")
        for value, want in zip(got, case.expected, strict=True):
            if self.arrays.shape(value) != self.arrays.shape(want):
                raise ValueError(f"shape {self.arrays.shape(value)}, expected "
                                 f"{self.arrays.shape(want)}")
        if damage := memory.damage(slot, slot + 1):
            raise ValueError(damage)
        changed = [tensor["name"] for tensor in memory.tensors
                   if tensor["role"] == "input" and not job["outputs_only"]
                   and memory.is_changed(tensor, slot, case.values[tensor["name"]])]
        digests = [self.arrays.digest(value) for value in got]
        if digests == job["known"]:
            return {"absolute": 0.0, "relative": 0.0, "bad": 0, "lost": 0.0, "each": [],
                    "changed": changed, "digests": digests}
        return {**self._errors(case, got), "changed": changed, "digests": digests}

    def close_memory(self, job: dict[str, Any]) -> dict[str, Any]:
        self.memories.pop(job["memory"]).close()
        return {}

    def _errors(self, case: Contents, got: list[Any]) -> dict[str, Any]:
        """Return the errors of outputs against the expected ones."""
        answer: dict[str, Any] = {"absolute": 0.0, "bad": 0, "lost": 0.0, "each": []}
        for value, want in zip(got, case.expected, strict=True):
            absolute, relative, bad = self.arrays.errors(value, want)
            answer["absolute"] = max(answer["absolute"], absolute)
            answer["bad"] += bad
            answer["lost"] = max(answer["lost"], self.arrays.lost(value, want))
            answer["each"].append(relative if math.isfinite(relative) else None)
        answer["relative"] = None if None in answer["each"] else max(answer["each"], default=0.0)
        return answer

    def open_ring(self, job: dict[str, Any]) -> dict[str, Any]:
        """Make the slots of a class for both sides; `share` are the descriptors of their memory."""
        tapes = {}
        for index, tensor in enumerate(job["tensors"]):
            if tensor["role"] in ("input", "inout"):
                key = job["class"], tensor["name"]
                if key not in self.tapes:
                    self.tapes[key] = Tape(self.arrays, tensor, job["seed"] + 104729 * index,
                                           job["kinds"])
                tapes[tensor["name"]] = self.tapes[key]
        ring = self.rings[job["ring"]] = Ring(self.arrays, job, tapes)
        return {"memory": [side.description for side in ring.sides.values()],
                "share": [side.memory.fd for side in ring.sides.values()]}

    def room(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return how many of some bytes may be taken for slots."""
        return {"bytes": self.arrays.room(job["bytes"])}

    def fill_ring(self, job: dict[str, Any]) -> dict[str, Any]:
        """Write contents to a side's slots, after new ones for the first `draw` of them."""
        ring = self.rings[job["ring"]]
        if job["draw"]:
            ring.draw(job["draw"])
        ring.fill(job["side"])
        if job["flush_bytes"]:
            self.arrays.flush(job["flush_bytes"])
        self.arrays.finish()
        return {}

    def look_at_ring(self, job: dict[str, Any]) -> dict[str, Any]:
        self.rings[job["ring"]].look(job["side"], job["count"])
        return {}

    def compare_ring(self, job: dict[str, Any]) -> dict[str, Any]:
        return self.rings[job["ring"]].compare(job["count"], job["limits"], job["last"])

    def judge_slot(self, job: dict[str, Any]) -> dict[str, Any]:
        """Hold both sides' answers in a slot against the reference; its contents become a case.

        `skip` is the reason if the reference has no answer. `damage` says which of its inputs a
        side overwrote.
        """
        ring, case = self.rings[job["ring"]], Contents(self.arrays, job["tensors"])
        case.values = ring.contents(job["slot"])
        damage = {side: ring.overwritten(side, job["slot"], case.values) for side in ring.sides}
        try:
            self._expect(case, job["dtypes"])
        except Exception as error:
            return {"skip": one_line(error), "damage": damage}
        self.cases[job["case"]] = case
        return {"skip": "", "damage": damage, **{side: self._errors(case, [
            answer.reshape(self.arrays.shape(want))
            for answer, want in zip(ring.answers(side, job["slot"]), case.expected, strict=True)])
            for side in ring.sides}}

    def close_ring(self, job: dict[str, Any]) -> dict[str, Any]:
        self.rings.pop(job["ring"]).close()
        return {}

    def drop(self, job: dict[str, Any]) -> dict[str, Any]:
        """Forget a case."""
        self.cases.pop(job["case"], None)
        return {}


def open_arrays(job: dict[str, Any]) -> Any:
    if job["library"] == "numpy":
        from .arrays_numpy import NumpyArrays

        return NumpyArrays()
    from .arrays_torch import TorchArrays

    return TorchArrays(job["device"], job["dtypes"], job["scratch"])


def main(descriptor: int) -> None:
    channel = Channel(descriptor)
    oracle: OracleProgram | None = None
    for job, _ in channel.requests():
        try:
            if job["op"] == "load":
                oracle = OracleProgram(job)
                answer: dict[str, Any] = {"libraries": versions.of_libraries()}
            else:
                answer = getattr(oracle, job["op"])(job)
        except BaseException as error:
            answer = {"error": one_line(error), "kind": type(error).__name__}
        channel.answer(answer, answer.pop("share", ()))
