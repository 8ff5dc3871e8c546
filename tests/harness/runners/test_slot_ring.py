"""Every timed call has contents of its own, and all that it answers or overwrites is seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.compile import kernel as kernels
from harness.devices import inventory
from harness.isolation.rpc import PeerError
from harness.runners.oracle_client import Oracle
from harness.runners.slots.case_memory import CaseMemory
from harness.runners.slots.slot_ring import SIDES, SlotRing, SlotRings
from harness.target import Arg, ConfigClass, Target
from harness.timing.timed_slots import SlotComparison
from tests.support import kernel_case, shared_zygotes
from tests.support.stub_runner import StubRunner

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
                 like: SlotRing | None = None) -> None:
        self.oracle = oracle
        self.case = oracle.make(oracle.target.classes[0], "normal")
        self.source = SlotRings(oracle, kinds=lambda name: KINDS, limits=lambda case: [1e-5],
                                on_gpu=False)
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
        """Call both kernels on new contents of all slots; return how their answers compare."""
        self.fill(count)
        for runner in self.sides.values():
            runner.run(count)
        return self.ring.compare(count, 0)

    def contents(self, slot: int, *names: str) -> tuple[float, ...]:
        """Return the inputs in a slot, which must be the same on both sides."""
        values = [tuple(value for name in names for value in runner.values(name, slot))
                  for runner in self.sides.values()]
        assert values[0] == values[1]
        return values[0]


def opened(folder: Path, of: Target, reference: str) -> Oracle:
    base = Path(kernel_case.tree(folder / "base", "", reference))
    place = kernels.place_on(inventory.find("cpu"), of.language, scratch=str(folder), python=None,
                             env={})
    return Oracle(of, base, folder / "io", place,
                  zygote=shared_zygotes.for_place(place, of.language))


def task(args: tuple[Arg, ...], language: str = "python", **fields: Any) -> Target:
    if language == "c":
        fields |= {"source": "kernel.c"}
    return kernel_case.target(language=language, args=args, classes=(
        ConfigClass(name="one", shape={"n": COUNT}),), **fields)


@pytest.fixture(scope="module", params=["c", "python"])
def oracle(request: pytest.FixtureRequest,
           tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    folder = tmp_path_factory.mktemp("ring")
    with opened(folder, task((*FOUR, OUT), request.param), FOUR_REFERENCE) as started:
        yield started


@pytest.fixture
def pair(oracle: Oracle) -> Iterator[Pair]:
    made = Pair(oracle)
    yield made
    made.ring.close()


# Contents


def test_no_contents_come_twice_and_both_sides_get_the_same(pair: Pair) -> None:
    seen = set()
    for _ in range(4):
        pair.fill()
        seen |= {pair.contents(slot, "x", "k", "u") for slot in range(SLOTS)}
    assert len(seen) == 4 * SLOTS


def test_sums_of_contents_do_not_come_twice(pair: Pair) -> None:
    seen = set()
    for _ in range(4):
        pair.fill()
        seen |= {math.fsum(pair.contents(slot, "x")) for slot in range(SLOTS)}
    assert len(seen) > 3.5 * SLOTS  # rows of zeros may come again


def test_two_verdicts_have_different_contents(oracle: Oracle) -> None:
    rounds = []
    for _ in range(2):
        pair = Pair(oracle)
        pair.fill()
        rounds.append({pair.contents(slot, "x", "k", "u") for slot in range(SLOTS)})
        pair.ring.close()
    assert not rounds[0] & rounds[1]


def test_contents_stay_within_their_bounds(pair: Pair) -> None:
    for _ in range(4):
        pair.fill()
        for slot in range(SLOTS):
            assert all(0.25 <= value <= 0.75 for value in pair.contents(slot, "u"))
            assert set(pair.contents(slot, "k")) <= {2, 3, 4, 5, 6, 7, 8}
            assert all(abs(value) <= 100 for value in pair.contents(slot, "x"))


def magnitudes(values: tuple[float, ...]) -> int:
    """Return how many sizes the values other than zero have; noise makes them an eighth smaller."""
    found: list[float] = []
    for value in sorted(abs(value) for value in values if value):
        if not found or value > found[-1] * 1.16:
            found.append(value)
    return len(found)


def test_all_kinds_of_input_are_among_the_contents(pair: Pair) -> None:
    x = []
    for _ in range(8):
        pair.fill()
        x += [pair.contents(slot, "x") for slot in range(SLOTS)]
    assert any(0 not in values and magnitudes(values) <= 2 for values in x), "constant"
    assert any(0 in values and magnitudes(values) == 2 and min(values) < 0 < max(values)
               for values in x), "tied"
    assert any(0 not in values and magnitudes(values) > 8 for values in x), "normal"
    assert any(values.count(0) > 4 and magnitudes(values) > 4 for values in x), "structured"


def test_weights_keep_their_contents(pair: Pair) -> None:
    seen = set()
    for _ in range(3):
        pair.fill()
        seen |= {pair.contents(slot, "w") for slot in range(SLOTS)}
    assert len(seen) == 1 and len(set(*seen)) > 1


def test_outputs_hold_nan_or_an_earlier_answer_before_a_block(pair: Pair) -> None:
    pair.run()
    before = {tuple(pair.candidate.values("out", slot)) for slot in range(SLOTS)}
    pair.fill()
    kinds = set()
    for slot in range(SLOTS):
        held = pair.candidate.values("out", slot)
        blank = all(math.isnan(value) for value in held)
        assert blank or tuple(held) in before
        right(pair.candidate, slot)
        assert pair.candidate.values("out", slot) != held
        kinds.add(blank)
    assert kinds == {False, True}


def test_only_the_slots_of_a_block_are_filled(pair: Pair) -> None:
    pair.fill()
    last = [pair.contents(slot, "x") for slot in range(SLOTS)]
    pair.fill(SLOTS // 2)
    changed = [pair.contents(slot, "x") != last[slot] for slot in range(SLOTS)]
    assert changed == [slot < SLOTS // 2 for slot in range(SLOTS)]


# What is seen after a block


def test_right_answers_agree(pair: Pair) -> None:
    for _ in range(3):
        assert pair.run() == SlotComparison(damage={"candidate": "", "incumbent": ""})


@pytest.mark.parametrize("slot", [0, 7, SLOTS - 1])
@pytest.mark.parametrize("wrong", [1e6, math.nan, math.inf])
def test_one_wrong_element_in_one_slot_is_seen(wrong: float, slot: int, pair: Pair) -> None:
    assert pair.run().differs == ()
    pair.candidate.view("out", slot)[COUNT - 1] = wrong
    assert pair.ring.compare(SLOTS, 0).differs == (slot,)


def test_worst_slots_come_first(pair: Pair) -> None:
    pair.run()
    for slot, off in ((3, 1e4), (9, 1e6), (5, math.nan), (12, 1e5)):
        pair.candidate.view("out", slot)[0] += off
    assert pair.ring.compare(SLOTS, 0).differs == (5, 9, 12, 3)


def test_a_skipped_call_is_seen(pair: Pair) -> None:
    pair.run()
    for skipped in range(0, SLOTS, 5):
        pair.fill()
        pair.incumbent.run(SLOTS)
        for slot in range(SLOTS):
            if slot != skipped:
                right(pair.candidate, slot)
        assert pair.ring.compare(SLOTS, 0).differs == (skipped,)


def test_values_that_are_finite_on_neither_side_agree(pair: Pair) -> None:
    pair.run()
    for runner in pair.sides.values():
        runner.view("out", 4)[:3] = [math.nan, math.inf, -math.inf]
    assert pair.ring.compare(SLOTS, 0).differs == ()


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("side", SIDES)
def test_overwritten_input_is_seen(side: str, name: str, pair: Pair) -> None:
    pair.run()
    for slot in range(SLOTS):
        pair.sides[side].view(name, slot)[5] += 1
    damage = pair.ring.compare(SLOTS, 0).damage
    assert damage == {**dict.fromkeys(SIDES, ""), side: f"overwrote its input {name}"}


@pytest.mark.parametrize("slot", [0, SLOTS - 1])
@pytest.mark.parametrize(("name", "end", "offset", "words"), [
    ("x", 0, -1, "before the beginning"), ("x", 1, 0, "past the end of x"),
    ("out", 0, -1, "before the beginning of out"), ("w", 1, 0, "past the end of w"),
    ("out", 1, 0, "past the end of out"),
    ("out", 1, 4095, "past the end of out")])
def test_write_besides_the_tensors_is_seen(name: str, end: int, offset: int, words: str, slot: int,
                                           pair: Pair) -> None:
    pair.run()
    pair.candidate.raw[slot, pair.candidate.place_of(name)[end] + offset] = 0
    damage = pair.ring.compare(SLOTS, 0).damage
    assert words in damage["candidate"] and damage["incumbent"] == ""


# The reference


def test_reference_judges_both_sides_of_a_slot(pair: Pair) -> None:
    pair.run()
    for slot in (2, 11):
        pair.ring.judge(slot)
    pair.candidate.view("out", 11)[3] += 64
    pair.ring.judge(11)
    first, second, wrong = pair.source.judged
    for judged in (first, second):
        assert all(errors.within(1e-6) for errors in judged.errors.values())
    x, k, u, w = (pair.incumbent.view(name, 11).astype("float64") for name in INPUTS)
    worst = abs(pair.incumbent.view("out", 11) - (x * k + u * w)).max()
    assert wrong.errors["incumbent"].absolute == pytest.approx(worst, rel=1e-9, abs=1e-15)
    assert wrong.errors["candidate"].absolute == pytest.approx(64, rel=1e-5)
    assert wrong.case.distribution == "slot" and wrong.case.config_class == "one"


def test_contents_of_a_judged_slot_are_a_case(pair: Pair) -> None:
    pair.run()
    pair.ring.judge(6)
    [judged] = pair.source.judged
    runner = StubRunner(right)
    memory = CaseMemory(pair.oracle, runner.peer, judged.case)
    assert memory.call(judged.case).within(1e-6)
    assert tuple(runner.values("x")) == pair.contents(6, "x")


def test_reference_sees_what_was_given_not_what_the_sides_made_of_it(pair: Pair) -> None:
    pair.fill()
    for runner in pair.sides.values():
        for slot in range(SLOTS):
            runner.view("x", slot)[:] = 1
        runner.run(SLOTS)
    assert pair.ring.compare(SLOTS, 0).differs == ()
    pair.ring.judge(1)
    assert not any(errors.within(1e-3) for errors in pair.source.judged[0].errors.values())


# Returned tensors, and arguments that are changed in place


RETURNED: list[dict[str, Any]] = [{"dtype": "float32", "shape": [COUNT]}]


def doubled(runner: StubRunner, slot: int) -> None:
    if runner.job["returned"]:
        runner.view("return", slot)[:] = 2 * runner.view("x", slot)


@pytest.fixture
def returning(tmp_path: Path) -> Iterator[Oracle]:
    of = task(FOUR[:1], returns=True, return_dtypes=("float32",))
    with opened(tmp_path, of, "def double(x):\n    return 2 * x\n") as started:
        yield started


def test_returned_tensors_are_compared_and_judged(returning: Oracle) -> None:
    first = Pair(returning, doubled, slots=2, returned=RETURNED)
    pair = Pair(returning, doubled, returned=RETURNED, like=first.ring)
    assert pair.ring.needs_store
    assert pair.run().differs == ()
    pair.ring.judge(8)
    pair.candidate.view("return", 8)[2] = math.nan
    assert pair.ring.compare(SLOTS, 0).differs == (8,)
    pair.ring.judge(8)
    before, after = pair.source.judged
    assert all(errors.within(1e-6) for errors in before.errors.values())
    assert after.errors["candidate"].bad == 1 and after.errors["incumbent"].within(1e-6)


def test_returned_tensors_of_another_shape_are_an_error(returning: Oracle) -> None:
    pair = Pair(returning, doubled, slots=2, returned=RETURNED)
    other = StubRunner(doubled, returned=[{"dtype": "float32", "shape": [COUNT - 1]}])
    pair.ring.send(other.peer, "candidate")
    with pytest.raises(PeerError, match="other shapes than the other side"):
        pair.ring.receive(other.peer, "candidate")


def test_arguments_changed_in_place_are_compared_and_judged(tmp_path: Path) -> None:
    of = task((FOUR[0], Arg(name="y", dtype="float32", shape=("n",), role="inout")))

    def added(runner: StubRunner, slot: int) -> None:
        y = runner.view("y", slot)
        y += runner.view("x", slot)

    with opened(tmp_path, of, "def double(x, y):\n    return y + x\n") as oracle:
        pair = Pair(oracle, added)
        pair.fill()
        assert not any(math.isnan(value) for slot in range(SLOTS)
                       for value in pair.contents(slot, "y")), "it is an input as well"
        for _ in range(2):
            assert pair.run() == SlotComparison(damage={"candidate": "", "incumbent": ""})
            pair.ring.judge(4)
        added(pair.candidate, 5)
        assert pair.ring.compare(SLOTS, 0).differs == (5,)
        pair.ring.judge(5)
        *before, after = pair.source.judged
        assert all(errors.within(1e-5) for each in before for errors in each.errors.values())
        assert not after.errors["candidate"].within(1e-3)
        assert after.errors["incumbent"].within(1e-5)
