"""Draws secret inputs and keeps the expected outputs, in a process that no candidate can reach.

Talks JSON lines over a socket. The reference is the baseline's: a Python function over float64
arrays (numpy for C targets, torch for Python and Triton) that takes the inputs by name, or the
baseline's own entry.
Standard library, plus numpy or torch.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from ..channel import serve
from ..memory.slot_memory import SlotMemory
from ..one_line import line_in, one_line
from .expected import Contents, ExpectedValues, NoAnswer
from .inputs import SPIKED, draw
from .reference import open_reference
from .ring import Ring
from .tape import Tape

TAPES_SHARE = 4
"""The tapes of a class take at most 1 / TAPES_SHARE of a card's free memory."""
ROUNDED_RUNS = 4
"""So often a reference runs with rounded operations, which may cancel in one run."""


class OracleProgram:
    """The reference function, and the cases that are drawn and not dropped yet."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.arrays = open_arrays(job)
        self.expected = ExpectedValues(self.arrays, open_reference(self.arrays, job))
        self.cases: dict[str, Contents] = {}
        self.tapes: dict[tuple[str, str], Tape] = {}
        self.kinds: dict[str, list[str]] = {}
        """By class, the kinds of input on its tapes."""
        self.rings: dict[str, Ring] = {}
        self.memories: dict[str, SlotMemory] = {}

    def reset(self, job: dict[str, Any]) -> dict[str, Any]:
        """Drop an evaluation's cases and memory; keep the reference and what it compiled."""
        for memory in self.memories.values():
            memory.close()
        for ring in self.rings.values():
            ring.close()
        for held in (self.cases, self.tapes, self.kinds, self.rings, self.memories):
            held.clear()
        self.arrays.forget()
        return {}

    def make(self, job: dict[str, Any]) -> dict[str, Any]:
        """Draw one case's inputs; compute and keep the expected outputs.

        `skip` is the reason if the reference has no answer and the case may be skipped. `notes`
        say what is not compared, and where the reference ran if not on the card.
        """
        case = Contents(self.arrays, job["tensors"], job["distribution"])
        for index, tensor in enumerate(job["tensors"]):
            if tensor["role"] not in ("scalar", "output"):
                drawn = draw(self.arrays, tensor, job["seed"] + index * 7919, job["distribution"])
                case.values[tensor["name"]] = self.arrays.to_native(drawn, tensor["dtype"])
        try:
            self.expected.compute(case, job["dtypes"])
        except Exception as error:
            if not job["may_skip"] or self.expected.card_fault:
                raise
            return {"skip": one_line(error), "controls": [], "notes": [], "shapes": []}
        self.cases[job["case"]] = case
        shapes, first = list(map(self.arrays.shape, case.expected)), self.cases.get(job["first"])
        if case.kind in SPIKED:
            return {"skip": "", "controls": [], "notes": [], "shapes": shapes}
        return {"skip": "", "notes": list(dict.fromkeys(case.notes)), "shapes": shapes,
                "controls": self.expected.trivial(case, first.expected if first else [])}

    def exchange(self, job: dict[str, Any]) -> dict[str, Any]:
        """Move elements within a case's inputs and compute the expected outputs again."""
        case = self.cases[job["case"]]
        for tensor in case.tensors:
            if tensor["name"] in job["moves"]:
                case.move(tensor, *job["moves"][tensor["name"]])
        self.expected.compute(case, case.dtypes)
        return {}

    def sensitivity(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return for each output its typical relative change when inputs change by `part`."""
        case, arrays = self.cases[job["case"]], self.arrays

        def nudge(values: dict[str, Any]) -> None:
            generator = arrays.generator(job["seed"])
            for name in case.values:
                values[name] = arrays.nudged(values[name], job["part"], generator)

        return {"typical": [arrays.typical(moved, want) for moved, want in
                            zip(self.expected.results(case, nudge), case.expected, strict=True)]}

    def inner_sensitivity(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return for each output its typical relative change when each operation rounds by `part`.

        `problem` is why a reference cannot run so, "" if it can.
        """
        case, changes = self.cases[job["case"]], []
        for turn in range(ROUNDED_RUNS):
            try:
                with self.arrays.rounding(job["part"], job["seed"] + turn):
                    moved = self.expected.results(case)
            except Exception as error:  # what a mode of torch makes of any reference is not known
                return {"typical": [0.0] * len(case.expected),
                        "problem": f"{type(error).__name__}: {error}"}
            changes.append([self.arrays.typical(*pair) for pair in zip(moved, case.expected,
                                                                       strict=True)])
        return {"typical": [max(each) for each in zip(*changes, strict=True)], "problem": ""}

    def open_memory(self, job: dict[str, Any]) -> dict[str, Any]:
        """Make memory for one runner; `share` is its descriptor."""
        memory = self.memories[job["memory"]] = SlotMemory(
            self.arrays, job, *self.arrays.share(job["slots"] * job["slot_bytes"], 1))
        return {"memory": memory.description, "share": memory.memory.take_files()}

    def place(self, job: dict[str, Any]) -> dict[str, Any]:
        """Write a case's inputs to a slot; `reverse` reverses the order of their elements."""
        self.memories[job["memory"]].place(job["slot"], self.cases[job["case"]].values,
                                           reverse=job["reverse"])
        return {}

    def judge(self, job: dict[str, Any]) -> dict[str, Any]:
        """Compare a slot's outputs with a case's expected values, and its inputs with the case's.

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
        return {**self.expected.errors(case, got), "changed": changed, "digests": digests}

    def close_memory(self, job: dict[str, Any]) -> dict[str, Any]:
        self.memories.pop(job["memory"]).close()
        return {}

    def open_ring(self, job: dict[str, Any]) -> dict[str, Any]:
        """Make the slots of a class for both sides; `share` are the descriptors of their memory.

        `kinds` is the number of kinds of input for which there is room.
        """
        tapes = {}
        if job["class"] not in self.kinds:
            self.kinds[job["class"]] = self._with_room(job)
        kinds = self.kinds[job["class"]]
        for index, tensor in enumerate(job["tensors"]):
            if tensor["role"] in ("input", "inout"):
                key = job["class"], tensor["name"]
                if key not in self.tapes:
                    self.tapes[key] = Tape(self.arrays, tensor, job["seed"] + 104729 * index, kinds)
                tapes[tensor["name"]] = self.tapes[key]
        ring = self.rings[job["ring"]] = Ring(self.arrays, {**job, "kinds": kinds}, tapes)
        shared = [side.memory.take_files() for side in ring.sides.values()]
        return {"kinds": len(kinds), "memory": [side.description for side in ring.sides.values()],
                "share": [fd for files in shared for fd in files],
                "files": [len(files) for files in shared]}

    def _with_room(self, job: dict[str, Any]) -> list[str]:
        """Return the kinds of input, at least one, whose tapes and noise fit into their share."""
        tape_bytes = sum(tensor["nbytes"] for tensor in job["tensors"]
                         if tensor["role"] in ("input", "inout")
                         and not tensor["weight"]) * 5 // 4
        needed = TAPES_SHARE * tape_bytes * (len(job["kinds"]) + 1)
        if (room := self.arrays.room(needed)) >= needed:
            return list(job["kinds"])
        return list(job["kinds"][:max(1, room // TAPES_SHARE // tape_bytes - 1)])

    def room(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return how many of the requested bytes are free for slots."""
        return {"bytes": self.arrays.room(job["bytes"])}

    def fill_ring(self, job: dict[str, Any]) -> dict[str, Any]:
        """Write contents to a side's slots; first choose new ones for `draw` slots, if not 0."""
        ring = self.rings[job["ring"]]
        if job["draw"]:
            ring.draw(job["draw"])
        ring.fill(job["side"])
        if job["flush_bytes"]:
            self.arrays.flush(job["flush_bytes"])
        self.arrays.finish()
        return {}

    def flip_ring(self, job: dict[str, Any]) -> dict[str, Any]:
        self.rings[job["ring"]].flip(job["side"])
        self.arrays.finish()
        return {}

    def sample_ring(self, job: dict[str, Any]) -> dict[str, Any]:
        self.rings[job["ring"]].keep_sample(job["side"], job["count"])
        return {}

    def compare_ring(self, job: dict[str, Any]) -> dict[str, Any]:
        return self.rings[job["ring"]].compare(job["count"], job["limits"], job["order"])

    def judge_slot(self, job: dict[str, Any]) -> dict[str, Any]:
        """Compare both sides' answers in a slot with the reference; its contents become a case.

        `skip` is the reason if the reference has no answer. `damage` says which of its inputs a
        side overwrote.
        """
        ring, case = self.rings[job["ring"]], Contents(self.arrays, job["tensors"], "slot")
        case.values = ring.contents(job["slot"])
        damage = {side: ring.overwritten(side, job["slot"], case.values) for side in ring.sides}
        try:
            self.expected.compute(case, job["dtypes"])
        except Exception as error:
            if self.expected.card_fault:
                raise
            return {"skip": one_line(error), "damage": damage}
        self.cases[job["case"]] = case
        return {"skip": "", "damage": damage, **{side: self.expected.errors(case, [
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


def versions_of_libraries() -> dict[str, str]:
    """Return the versions of torch, its CUDA or HIP, and Triton; {} if torch is not imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    from importlib import metadata  # takes 70 ms, but torch has imported it already

    built = {"torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip}
    triton = sys.modules.get("triton")
    with contextlib.suppress(metadata.PackageNotFoundError):  # torch works without Triton
        built["triton"] = triton.__version__ if triton else metadata.version("triton")
    return {name: str(version) for name, version in built.items() if version}


def main(descriptor: int) -> None:
    oracle: OracleProgram | None = None
    reference = ""

    def work(job: dict[str, Any]) -> dict[str, Any]:
        nonlocal oracle, reference
        if job["op"] == "load":
            reference = job.get("reference") or ""
            oracle = OracleProgram(job)
            return {"libraries": versions_of_libraries()}
        if oracle is not None and oracle.expected.card_fault:
            return {"error": oracle.expected.card_fault, "kind": NoAnswer.__name__}
        answer: dict[str, Any] = getattr(oracle, job["op"])(job)
        return answer

    serve(descriptor, work, lambda error: one_line(error) + line_in(reference, error))
