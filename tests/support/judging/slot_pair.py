"""The slots of a class in the oracle's memory, with a stub runner for each side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.compile.place import place_on
from harness.devices import inventory
from harness.runners.oracle_client import Oracle
from harness.runners.slots.slot_ring import SIDES, SlotRing, SlotRings
from harness.tasks.target import Arg, ConfigClass, Target
from harness.timing.timed_slots import SlotComparison
from tests.support.judging.stub_runner import StubRunner
from tests.support.kernels import kernel_case
from tests.support.programs import shared_zygotes

COUNT, SLOTS = 40, 24
KINDS = ("normal", "wide", "heavy", "structured", "shifted", "tied", "constant")
INPUTS = ("x", "k", "u", "w")
OUT = Arg(name="out", dtype="float32", shape=("n",), role="output")
FOUR = (Arg(name="x", dtype="float32", shape=("n",)),
        Arg(name="k", dtype="int32", shape=("n",), low=2, high=9),
        Arg(name="u", dtype="float32", shape=("n",), low=0.25, high=0.75),
        Arg(name="w", dtype="float32", shape=("n",), weight=True))
FOUR_REFERENCE = "def double(x, k, u, w):\n    return x * k + u * w\n"


def right(runner: StubRunner, slot: int) -> None:
    x, k, u, w = (runner.view(name, slot) for name in INPUTS)
    runner.view("out", slot)[:] = x * k + u * w


class Pair:
    """The slots of a class, and a stub of each side."""

    def __init__(self, oracle: Oracle, kernel: Callable[[StubRunner, int], None] = right, *,
                 slots: int = SLOTS, returned: list[dict[str, Any]] | None = None,
                 like: SlotRing | None = None, source: SlotRings | None = None) -> None:
        self.oracle = oracle
        self.case = oracle.make(oracle.target.classes[0], "normal")
        self.source = source or SlotRings(
            oracle, kinds=lambda name: KINDS, limits=lambda case: [1e-5], on_gpu=False)
        self.ring = self.source.open(self.case, slots, like)
        self.sides = {side: StubRunner(kernel, returned=returned) for side in SIDES}
        self.candidate, self.incumbent = (self.sides[side] for side in SIDES)
        for side, runner in self.sides.items():
            self.ring.send(runner.peer, side)
            self.ring.receive(runner.peer, side)

    def fill(self, count: int = SLOTS) -> None:
        self.ring.draw(count)
        for side in SIDES:
            self.ring.fill(side)

    def run(self, count: int = SLOTS) -> SlotComparison:
        """Call both kernels on new contents of `count` slots; return how their answers compare."""
        self.fill(count)
        for runner in self.sides.values():
            runner.run(count)
        return self.ring.compare(count, [*range(count)])

    def contents(self, slot: int, *names: str) -> tuple[float, ...]:
        """Return the inputs in a slot, which must be the same on both sides."""
        values = [tuple(value for name in names for value in runner.values(name, slot))
                  for runner in self.sides.values()]
        assert values[0] == values[1]
        return values[0]


def opened(folder: Path, of: Target, reference: str) -> Oracle:
    base = Path(kernel_case.tree(folder / "base", "", reference))
    place = place_on(inventory.find("cpu"), of.language, scratch=str(folder), python=None,
                     env={})
    return Oracle(of, base, folder / "io",
                  replace(place, zygote=shared_zygotes.for_place(place, of.language)))


def task(args: tuple[Arg, ...], language: str = "python", **fields: Any) -> Target:
    if language == "c":
        fields |= {"source": "kernel.c"}
    return kernel_case.target(language=language, args=args, classes=(
        ConfigClass(name="one", shape={"n": COUNT}),), **fields)
