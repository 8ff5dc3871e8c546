"""Contents of slots are equal in numpy and torch, new in each draw, and cheap to write."""

from __future__ import annotations

import random
from typing import Any

import pytest

from harness.child.oracle import ring as rings
from harness.child.oracle.arrays_numpy import NumpyArrays
from harness.child.oracle.ring import PARTS, SCATTER
from harness.child.oracle.tape import Tape
from tests.support.judging.ring_case import (
    BYTES,
    LARGE,
    OF_NUMPY,
    SIDES,
    made,
    redraw,
    tensor,
    words,
)


@pytest.mark.parametrize("dtype", BYTES)
def test_slots_hold_what_the_ring_says_they_were_given(arrays: Any, dtype: str) -> None:
    if dtype not in OF_NUMPY and isinstance(arrays, NumpyArrays):
        pytest.skip("numpy has no such dtype")
    bounds = {"low": 2, "high": 9} if "int" in dtype else {}
    within = {"low": 0.25, "high": 0.75} if "float" in dtype else {"low": 0, "high": 100}
    ring = made(arrays, [
        tensor("small", LARGE - 1, dtype, **bounds), tensor("edge", LARGE, dtype, **bounds),
        tensor("large", LARGE + 1, dtype, **bounds), tensor("huge", 5 * LARGE + 3, dtype),
        tensor("within", 2 * LARGE, dtype, **within), tensor("one", 1, dtype),
        tensor("weight", 2 * LARGE, dtype, weight=True),
        tensor("changed", 2 * LARGE, dtype, role="inout")], slots := 6)
    rng = random.Random(dtype)
    for count in [slots, *(rng.randrange(1, slots + 1) for _ in range(2))]:
        redraw(ring, count)
        for slot in range(slots):
            contents = ring.contents(slot)
            for side in SIDES:
                for each in ring.inputs:
                    held = ring.sides[side].rows(each)[slot]
                    assert arrays.equal(held, contents[each["name"]]), (each["name"], slot, count)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("dtype", OF_NUMPY)
def test_numpy_and_torch_write_the_same_contents(torch_arrays: Any, dtype: str) -> None:
    import torch

    bounds = {"low": 2, "high": 9} if "int" in dtype else {"low": 0.25, "high": 0.75}
    tensors = [tensor("free", 3 * LARGE, dtype), tensor("bound", 2 * LARGE, dtype, **bounds),
               tensor("short", 77, dtype), tensor("weight", 300, dtype, weight=True)]
    both = [made(arrays, [dict(each) for each in tensors], 4)
            for arrays in (NumpyArrays(), torch_arrays)]
    for name, tape in both[0].tapes.items():
        both[1].tapes[name].values = torch.from_numpy(tape.values)
        both[1].tapes[name].noise = None if tape.fixed else torch.from_numpy(tape.noise)
    for count in (4, 2, 3, 4):
        for ring in both:
            redraw(ring, count)
        assert [words(ring, name) for ring in both for name in ring.tapes][:4] == \
            [words(both[1], name) for name in both[1].tapes]


def test_each_draw_changes_an_eighth_and_scattered_elements_of_every_slot(arrays: Any) -> None:
    ring, count, places = made(arrays, [tensor("x", 8 * LARGE)], 5), 8 * LARGE, set()
    redraw(ring, 5)
    for _ in range(6):
        before = words(ring, "x")
        redraw(ring, 5)
        after = words(ring, "x")
        changed = [[at for at in range(count) if old[at] != new[at]]
                   for old, new in zip(before, after, strict=True)]
        part, single = ring._new["x"]
        for each in changed:
            inside = [at for at in each if part.at <= at < part.at + part.length]
            scattered = [at for at in each if at % SCATTER == single.at]
            assert len(inside) > 0.5 * count / PARTS, "some values are zero, and stay so"
            assert len(scattered) > 0.4 * count / SCATTER
        places.add((part.at, single.at))
    assert len(places) == 6


def test_two_slots_never_get_the_same_values_in_one_draw(arrays: Any) -> None:
    ring = made(arrays, [tensor("x", 2 * LARGE)], 6)
    for _ in range(3):
        redraw(ring, 6)
        for patch in ring._new["x"]:
            assert len(set(zip(patch.starts, patch.noises, strict=True))) == patch.slots
        assert len({tuple(row) for row in words(ring, "x")}) == 6


def test_number_of_patches_of_a_slot_is_bounded(arrays: Any,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "MOST_PATCHES", 6)
    ring = made(arrays, [tensor("x", 2 * LARGE), tensor("k", 9, "int32"),
                         tensor("y", 2 * LARGE, role="inout")], 4)
    for count in (4, 2, 3, 1, 4, 2, 2, 1, 3, 4, 1, 2, 3):
        redraw(ring, count)
        assert all(len(patches) <= 7 for patches in ring._patches.values())
        for slot in range(4):
            for name, values in ring.contents(slot).items():
                assert words(ring, name)[slot] == arrays.typed(values, "int32").tolist()


@pytest.mark.parametrize("fields", [
    {"dtype": "float32"}, {"dtype": "float16"}, {"dtype": "float32", "low": 0.0, "high": 1.0},
    {"dtype": "int8", "low": -127, "high": 128}, {"dtype": "int32", "low": 0, "high": 32000},
    {"dtype": "int8", "low": 0, "high": 2, "columns": 64},
    {"structure": "probabilities"}, {"structure": "log_probabilities"},
    {"structure": "two_valued", "low": 0.0, "high": 1.0, "columns": 64},
], ids=lambda fields: " ".join(map(str, fields.values())))
def test_rows_of_few_columns_seldom_come_again(arrays: Any, fields: dict[str, Any]) -> None:
    kinds = ["normal", "shifted", "tied", "constant"]
    columns = fields.get("columns", 16)
    spec = {**tensor("x", 0), **fields, "shape": [64, columns]}
    rows = written(arrays, spec, kinds, 120).reshape(-1, columns)
    assert len(set(map(bytes, rows))) > 0.98 * len(rows)


def test_permutations_do_not_come_again_not_even_rotated(arrays: Any) -> None:
    spec = {**tensor("x", 20000, "int32", structure="distinct"), "low": 5, "high": 20005}
    rows = written(arrays, spec, ["normal"], 10)
    assert all(len(set(row.tolist())) == 20000 and row.min() == 5 for row in rows)
    assert len({bytes((row - row[0]) % 20000) for row in rows}) > 36


def written(arrays: Any, spec: dict[str, Any], kinds: list[str], slots: int) -> Any:
    """Return the contents that a tape writes to the slots of four blocks, one row per slot."""
    import numpy

    tape, rng, blocks = Tape(arrays, spec, 5, kinds), random.Random(2), []
    for _ in range(4):
        nbytes = slots * tape.count * BYTES[spec["dtype"]]  # a card may allocate more
        [(memory, raw)] = arrays.share(nbytes, 1)
        rows = arrays.typed(raw[:nbytes].reshape(slots, -1), spec["dtype"])
        tape.write(rows, tape.patch([slot % len(kinds) for slot in range(slots)], rng))
        blocks.append(rows.copy() if isinstance(arrays, NumpyArrays) else rows.cpu().numpy())
        del memory  # frees the block's memory
    return numpy.concatenate(blocks)


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_no_output_keeps_what_its_own_slot_answered(arrays: Any, count: int) -> None:
    """Before a block, an output gets NaN or the answer of another slot."""
    ring = made(arrays, [tensor("x", 4), tensor("out", 5, "int32", role="output")], 6)
    kept = set()
    for _ in range(8):
        for side in SIDES:
            rows = ring.sides[side].rows(ring.sides[side].outputs[0])
            for slot in range(6):
                rows[slot] = slot
        redraw(ring, count)
        after = [row[0] for row in words(ring, "out")]
        assert after[count:] == list(range(6))[count:]
        assert all(value == -1 or (value != slot and value < count)
                   for slot, value in enumerate(after[:count]))
        assert after[:count].count(-1) == (count + 1) // 2
        kept.add(tuple(after))
    assert count < 4 or len(kept) > 2


def test_number_of_torch_operations_hardly_depends_on_the_number_of_slots(
        torch_arrays: Any) -> None:
    counts = []
    for slots in (4, 64):
        ring = made(torch_arrays, [tensor("a", 2 * LARGE, "bfloat16"),
                                   tensor("b", 2 * LARGE, "bfloat16"),
                                   tensor("out", 2 * LARGE, "bfloat16", role="output")], slots)
        redraw(ring, slots)
        for _ in range(8):
            redraw(ring, slots)
        done = [operations(lambda r=ring, n=slots: r.draw(n)),
                *(operations(lambda r=ring, s=side: r.fill(s)) for side in SIDES)]
        for side in ring.sides.values():
            side.rows(side.outputs[0])[:] = 1.0
        counts.append((*done[:2], operations(
            lambda r=ring, n=slots: r.compare(n, [1e-2], [*range(n)]))))
    (_, few_fill, few_compare), (draw, fill, compare) = counts
    assert fill <= few_fill + 2 and fill <= 20 and draw <= 8
    assert compare <= few_compare + 8 and compare <= 60


def operations(work: Any) -> int:
    """Return how many torch operations, other than views, a function runs."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        done = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (),
                               kwargs: Any = None) -> Any:
            self.done += not function.is_view
            return function(*args, **(kwargs or {}))

    with Count() as counted:
        work()
    return counted.done
