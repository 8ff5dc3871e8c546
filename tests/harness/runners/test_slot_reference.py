"""The reference judges both sides' answers in slots of timed calls by the inputs given to them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from harness.isolation.rpc import PeerError
from harness.runners.oracle_client import Oracle
from harness.runners.slots.case_memory import CaseMemory
from harness.tasks.target import Arg
from harness.timing.timed_slots import SlotComparison
from tests.support.judging.slot_pair import (
    COUNT,
    FOUR,
    INPUTS,
    SLOTS,
    Pair,
    opened,
    right,
    task,
)
from tests.support.judging.stub_runner import StubRunner

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


def test_contents_of_a_judged_slot_can_be_called_again_as_a_case(pair: Pair) -> None:
    pair.run()
    pair.ring.judge(6)
    [judged] = pair.source.judged
    runner = StubRunner(right)
    memory = CaseMemory(pair.oracle, runner.peer, judged.case)
    assert memory.call(judged.case).within(1e-6)
    assert tuple(runner.values("x")) == pair.contents(6, "x")


def test_reference_uses_the_given_inputs_also_if_both_sides_overwrote_them(pair: Pair) -> None:
    pair.fill()
    for runner in pair.sides.values():
        for slot in range(SLOTS):
            runner.view("x", slot)[:] = 1
        runner.run(SLOTS)
    assert pair.ring.compare(SLOTS, [*range(SLOTS)]).differs == ()
    pair.ring.judge(1)
    assert not any(errors.within(1e-3) for errors in pair.source.judged[0].errors.values())


# Returned tensors, and arguments that are changed in place


RETURNED: list[dict[str, Any]] = [{"dtype": "float32", "shape": [COUNT]}]


def doubled(runner: StubRunner, slot: int) -> None:
    if runner.job["returned"]:
        runner.view("return", slot)[:] = 2 * runner.view("x", slot)


@pytest.fixture
def returning(tmp_path: Path) -> Iterator[Oracle]:
    target = task(FOUR[:1], returns=True, return_dtypes=("float32",))
    with opened(tmp_path, target, "def double(x):\n    return 2 * x\n") as started:
        yield started


def test_returned_tensors_are_compared_and_judged(returning: Oracle) -> None:
    first = Pair(returning, doubled, slots=2, returned=RETURNED)
    pair = Pair(returning, doubled, returned=RETURNED, like=first.ring)
    assert pair.ring.needs_store
    assert pair.run().differs == ()
    pair.ring.judge(8)
    pair.candidate.view("return", 8)[2] = math.nan
    assert pair.ring.compare(SLOTS, [*range(SLOTS)]).differs == (8,)
    pair.ring.judge(8)
    before, after = pair.source.judged
    assert all(errors.within(1e-6) for errors in before.errors.values())
    assert after.errors["candidate"].bad == 1 and after.errors["incumbent"].within(1e-6)


@pytest.mark.parametrize(("memory", "slots"), [("", 2), ("an argument's memory", 0)])
def test_inputs_are_changed_while_returned_values_are_copied_and_then_restored(
        returning: Oracle, memory: str, slots: int) -> None:
    """A kernel that reads an input only during the copy returns wrong values."""
    returned = [{**RETURNED[0], "memory": memory}]
    first = Pair(returning, doubled, slots=2, returned=returned)
    pair = Pair(returning, doubled, returned=returned, like=first.ring)
    pair.fill()
    before = [pair.contents(slot, "x") for slot in range(SLOTS)]
    other = dict[str, set[int]]()
    for side, runner in pair.sides.items():
        pair.ring.flip(side)
        other[side] = {slot for slot in range(SLOTS)
                       if tuple(runner.values("x", slot)) != before[slot]}
        pair.ring.flip(side)
    assert all(len(each) >= slots and bool(each) == bool(slots) for each in other.values())
    assert [pair.contents(slot, "x") for slot in range(SLOTS)] == before


def test_returned_tensors_of_another_shape_are_an_error(returning: Oracle) -> None:
    first = Pair(returning, doubled, slots=2, returned=RETURNED)
    ring = first.source.open(first.case, 2)
    for side, count in (("incumbent", COUNT), ("candidate", COUNT - 1)):
        runner = StubRunner(doubled, returned=[{"dtype": "float32", "shape": [count]}])
        ring.send(runner.peer, side)
        with nullcontext() if count == COUNT else \
                pytest.raises(PeerError, match="return tensors of different shapes"):
            ring.receive(runner.peer, side)


def test_arguments_changed_in_place_are_compared_and_judged(tmp_path: Path) -> None:
    target = task((FOUR[0], Arg(name="y", dtype="float32", shape=("n",), role="inout")))

    def added(runner: StubRunner, slot: int) -> None:
        y = runner.view("y", slot)
        y += runner.view("x", slot)

    with opened(tmp_path, target, "def double(x, y):\n    return y + x\n") as oracle:
        pair = Pair(oracle, added)
        pair.fill()
        assert not any(math.isnan(value) for slot in range(SLOTS)
                       for value in pair.contents(slot, "y")), "it is an input as well"
        for _ in range(2):
            assert pair.run() == SlotComparison(damage={"candidate": "", "incumbent": ""})
            pair.ring.judge(4)
        added(pair.candidate, 5)
        assert pair.ring.compare(SLOTS, [*range(SLOTS)]).differs == (5,)
        pair.ring.judge(5)
        *before, after = pair.source.judged
        assert all(errors.within(1e-5) for each in before for errors in each.errors.values())
        assert not after.errors["candidate"].within(1e-3)
        assert after.errors["incumbent"].within(1e-5)
