"""The contents of slots, as numpy and torch write them: equal, new in each draw, and cheap."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from harness.child.oracle import ring as rings
from harness.child.oracle.arrays_numpy import NumpyArrays
from harness.child.oracle.ring import PARTS, SCATTER, Ring
from harness.child.oracle.slot_memory import GUARD_BYTES
from harness.child.oracle.tape import Tape

SIDES = ("candidate", "incumbent")
KINDS = ["normal", "structured", "tied"]
BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4,
         "int8": 1, "uint8": 1, "float8_e4m3fn": 1}
OF_NUMPY = ("float64", "float32", "float16", "int64", "int32", "int8", "uint8")
LARGE = 1000


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumpyArrays, "large", LARGE)


@pytest.fixture(scope="module")
def torch_arrays() -> Any:
    pytest.importorskip("torch")
    from harness.child.oracle.arrays_torch import TorchArrays

    arrays = TorchArrays("cpu")
    arrays.large = LARGE
    return arrays


@pytest.fixture(scope="module")
def card_arrays(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from harness.child.oracle.arrays_torch import TorchArrays
    from harness.child.oracle.card_kernels import KINDS as DTYPES

    arrays = TorchArrays("cuda:0", DTYPES, str(tmp_path_factory.mktemp("kernels")))
    arrays.large = LARGE
    return arrays


@pytest.fixture(params=["numpy", "torch", "torch, windows copied",
                        pytest.param("card", marks=pytest.mark.gpu)])
def arrays(request: pytest.FixtureRequest, torch_arrays: Any,
           monkeypatch: pytest.MonkeyPatch) -> Any:
    """Arrays that write long windows directly, and some that copy them, as for short ones."""
    if request.param == "card":
        return request.getfixturevalue("card_arrays")
    if request.param == "numpy":
        return NumpyArrays()
    copies = request.param != "torch"
    monkeypatch.setattr(torch_arrays, "direct", 1 << 30 if copies else 64)
    monkeypatch.setattr(torch_arrays, "chunk", 3000)
    return torch_arrays


def tensor(name: str, count: int, dtype: str = "float32", role: str = "input",
           **fields: Any) -> dict[str, Any]:
    return {"name": name, "role": role, "dtype": dtype, "stored": dtype, "shape": [count],
            "nbytes": count * BYTES[dtype], "low": None, "high": None, "weight": False, **fields}


def made(arrays: Any, tensors: list[dict[str, Any]], slots: int, seed: int = 3) -> Ring:
    end = GUARD_BYTES
    for each in tensors:
        each["offset"] = end
        end += (each["nbytes"] // GUARD_BYTES + 2) * GUARD_BYTES
    job = {"tensors": tensors, "slots": slots, "slot_bytes": end, "kinds": KINDS, "seed": seed,
           "sides": {side: [] for side in SIDES}}
    return Ring(arrays, job, {each["name"]: Tape(arrays, each, seed + index, KINDS)
                              for index, each in enumerate(tensors) if each["role"] != "output"})


def redraw(ring: Ring, count: int) -> None:
    ring.draw(count)
    for side in SIDES:
        ring.fill(side)


def words(ring: Ring, name: str, side: str = "candidate") -> list[list[int]]:
    [one] = [each for each in ring.sides[side].tensors if each["name"] == name]
    rows: list[list[int]] = ring.arrays.typed(ring.sides[side].rows(one), {
        1: "uint8", 2: "int16", 4: "int32", 8: "int64"}[BYTES[one["dtype"]]]).tolist()
    return rows


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
    for count in [slots, *(rng.randrange(1, slots + 1) for _ in range(4))]:
        redraw(ring, count)
        for slot in range(slots):
            contents = ring.contents(slot)
            for side in SIDES:
                for each in ring.inputs:
                    held = ring.sides[side].rows(each)[slot]
                    assert arrays.equal(held, contents[each["name"]]), (each["name"], slot, count)


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


def test_what_contents_were_put_together_from_stays_bounded(
        arrays: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "MOST_PATCHES", 6)
    ring = made(arrays, [tensor("x", 2 * LARGE), tensor("k", 9, "int32"),
                         tensor("y", 2 * LARGE, role="inout")], 4)
    for count in (4, 2, 3, 1, 4, 2, 2, 1, 3, 4, 1, 2, 3):
        redraw(ring, count)
        assert all(len(patches) <= 7 for patches in ring._patches.values())
        for slot in range(4):
            for name, values in ring.contents(slot).items():
                assert words(ring, name)[slot] == arrays.typed(values, "int32").tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_no_output_keeps_what_its_own_slot_answered(arrays: Any, count: int) -> None:
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


def test_operations_do_not_grow_with_the_number_of_slots(torch_arrays: Any) -> None:
    counts = []
    for slots in (4, 64):
        ring = made(torch_arrays, [tensor("a", 2 * LARGE, "bfloat16"),
                                   tensor("b", 2 * LARGE, "bfloat16"),
                                   tensor("out", 2 * LARGE, "bfloat16", role="output")], slots)
        redraw(ring, slots)
        for _ in range(20):
            redraw(ring, slots)
        done = [operations(lambda r=ring, n=slots: r.draw(n)),
                *(operations(lambda r=ring, s=side: r.fill(s)) for side in SIDES)]
        for side in ring.sides.values():
            side.rows(side.outputs[0])[:] = 1.0
        counts.append((*done[:2], operations(lambda r=ring, n=slots: r.compare(n, [1e-2], 0))))
    (_, few_fill, few_compare), (draw, fill, compare) = counts
    assert fill <= few_fill + 2 and fill <= 20 and draw <= 8
    assert compare <= few_compare + 8 and compare <= 60


def operations(work: Any) -> int:
    """Return how many operations of torch some work takes, without views."""
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


VALUES = {"right": 0.0, "off": 0.5, "not a number": math.nan, "infinite": math.inf}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int32"])
def test_bound_clears_no_row_that_differs(arrays: Any, dtype: str) -> None:
    if dtype not in OF_NUMPY and isinstance(arrays, NumpyArrays):
        pytest.skip("numpy has no such dtype")
    rng = random.Random(7)
    rows = [[rng.gauss(0, 9) for _ in range(700)] for _ in range(6)]
    want = arrays.to_native(numbers(arrays, rows), dtype).reshape(6, 700)
    for columns in ([0], [699], [3, 300]):
        for what, value in VALUES.items():
            if "int" in dtype and not math.isfinite(value):
                continue
            got = want + 0
            for column in columns:
                got[4, column] += int(100 * value) if "int" in dtype else value * 9
            [bounds] = arrays.fetched([arrays.excess(got, want, 0.02)])
            assert [not bound <= 1 for bound in bounds] == [
                slot == 4 and what != "right" for slot in range(6)]
            for limit in (0.0, 0.02):
                exact = arrays.differences(got, want, limit)
                assert [value <= 0.02 for value in exact] == [
                    slot != 4 or what == "right" for slot in range(6)]


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_differences_near_the_limit_are_exact(arrays: Any, scale: float) -> None:
    if isinstance(arrays, NumpyArrays):
        pytest.skip("numpy has no bfloat16")
    rng = random.Random(3)
    values = [[scale * rng.gauss(0, 1) for _ in range(200)] for _ in range(64)]
    want = arrays.to_native(numbers(arrays, values), "bfloat16").reshape(64, 200)
    moved = [[value + (value + 2 * scale) * 0.02 * rng.uniform(0, 1.3) for value in row]
             for row in values]
    got = arrays.to_native(numbers(arrays, moved), "bfloat16").reshape(64, 200)
    exact = arrays.differences(got, want)
    for limit in exact:
        assert [value <= limit for value in arrays.differences(got, want, limit)] == [
            value <= limit for value in exact]


def test_values_that_are_finite_on_neither_side_cost_only_their_rows(arrays: Any) -> None:
    want = arrays.to_native(numbers(arrays, [[1.0] * 90] * 40), "float32").reshape(40, 90)
    got, seen = want + 0, []
    for value, slot in ((math.nan, 3), (math.inf, 17)):
        got[slot, 5] = want[slot, 5] = value
    ring = made(arrays, [tensor("x", 4), tensor("out", 90, role="output")], 40)
    differences = arrays.differences
    ring.arrays = type("Spy", (), {"differences": lambda self, got, want, limit: (
        seen.append(len(got)), differences(got, want, limit))[1], "chunk": arrays.chunk})()
    worst = [0.0] * 40
    [bounds] = arrays.fetched([arrays.excess(got, want, 1e-5)])
    ring._judge_rows(got, want, 1e-5, bounds, worst)
    assert sum(seen) in (0, 2) and max(worst) == 0


def test_huge_answers_that_differ_are_seen(arrays: Any) -> None:
    want = arrays.to_native(numbers(arrays, [[1e30] * 50] * 2), "float32").reshape(2, 50)
    got = want * 1
    got[1, 7] = 2e30
    assert [value <= 1e-5 for value in arrays.differences(got, want)] == [True, False]
    [bounds] = arrays.fetched([arrays.excess(got, want, 1e-5)])
    assert bounds[0] <= 1 < bounds[1]


def numbers(arrays: Any, rows: list[list[float]]) -> Any:
    return arrays.np.array(rows) if isinstance(arrays, NumpyArrays) else \
        arrays.torch.tensor(rows, dtype=arrays.torch.float64, device=arrays.device)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(5, 4096), (3, 70_001), (2, 7)])
def test_kernels_of_a_card_find_what_torch_finds(card_arrays: Any, dtype: str,
                                                 shape: tuple[int, int]) -> None:
    torch = card_arrays.torch
    generator = card_arrays.generator(11)
    want = (torch.randn(shape, generator=generator, device="cuda:0") * 3).to(getattr(torch, dtype))
    moved = torch.rand(shape, generator=generator, device="cuda:0") < 0.3
    got = torch.where(moved, want * 1.0078125, want)
    got[0] = want[0]
    got[1, 1], want[1, 1] = math.nan, math.inf
    exact = card_arrays.differences(got, want)
    [found] = card_arrays.fetched([card_arrays.excess(got, want, 1e-9)])
    assert [value * 1e-9 for value in found] == pytest.approx(exact, rel=1e-2)
    assert card_arrays.kernels.knows(got) and found[0] == 0.0
    wide = torch.randn(shape, generator=generator, device="cuda:0", dtype=torch.float64)
    expected = TorchErrors(torch).errors(got, wide)
    assert card_arrays.errors(got, wide) == pytest.approx(expected, rel=1e-9)
    assert expected[2] == 1


class TorchErrors:
    """The errors as torch's own operations give them."""

    def __init__(self, torch: Any) -> None:
        from harness.child.oracle.arrays_torch import TorchArrays

        self._arrays = TorchArrays("cpu")

    def errors(self, got: Any, want: Any) -> tuple[float, float, int]:
        return self._arrays.errors(got.cpu(), want.cpu())
