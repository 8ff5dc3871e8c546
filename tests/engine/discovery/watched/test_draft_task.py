"""Tests the task drafted from observed calls: symbols, roles, ranges, classes and weights."""

from __future__ import annotations

import pytest

from engine.discovery.watched import draft_task, drafted_target, entry_source
from engine.discovery.watched.draft_task import TaskDraft
from engine.discovery.watched.expected.reference_source import FoundReference
from engine.discovery.watched.size_names import SizeNames
from harness.call_trace.watched_calls import ObservedCall, ObservedValue
from harness.errors import InputError
from harness.tasks.target import BASELINE
from harness.tasks.task_file import check
from tests.support.kernels import watched_case


def draft_of(function: str) -> TaskDraft:
    entry, observed, _ = watched_case.observe(function)
    [group] = draft_task.groups(draft_task.visible(observed.calls, entry))
    return draft_task.draft(group, entry, "kernels.py:1")


def tensor(*shape: int, dtype: str = "float32", low: float = -1, high: float = 1) -> ObservedValue:
    return ObservedValue(kind="tensor", dtype=dtype, shape=shape, low=low, high=high, stride=tuple(
        [1, *shape[:0:-1]][::-1]) if len(shape) == 2 else (1,) * len(shape))


def test_sizes_that_vary_get_the_names_of_the_source() -> None:
    args = {arg.name: arg for arg in draft_of("norm").args}
    assert args["x"].shape == ("rows", "cols") and args["weight"].shape == ("cols",)
    assert args["eps"].value == 1e-5


def test_classes_are_the_shapes_called_weighted_by_their_calls() -> None:
    assert [(entry.shape, entry.weight) for entry in draft_of("norm").classes] == [
        ({"rows": 4, "cols": 32}, 2), ({"rows": 7, "cols": 33}, 1), ({"rows": 5, "cols": 64}, 1)]


@pytest.mark.slow
def test_filled_argument_is_an_output_and_an_index_keeps_its_range() -> None:
    draft = draft_of("gather")
    args = {arg.name: arg for arg in draft.args}
    assert args["out"].kind == "output" and not draft.returns
    assert (args["index"].low, args["index"].high) == (0, 8)
    assert list(args) == ["out", "table", "index", "cols"], "a default at the end is not passed"


def test_task_of_a_function_with_keywords_has_an_adapter() -> None:
    entry, _, _ = watched_case.observe("norm")
    result = drafted_target.make(draft_of("norm"), entry, "kernels.py", "python")
    assert result is not None
    check(result.target)
    assert result.target.adapter == "kopt_task/adapter.py:call"
    assert "mode=mode" in result.files[drafted_target.ADAPTER]
    assert result.target.reference == BASELINE


@pytest.mark.slow
def test_reference_that_leaves_an_output_unchecked_is_not_taken() -> None:
    entry, _, _ = watched_case.observe("double")
    draft = draft_of("double")
    reference = FoundReference(source="", where="", outputs=(), call=ObservedCall(args={}, calls=1))
    assert drafted_target.make(draft, entry, "kernels.py", "python", found=reference) is None


@pytest.mark.slow
def test_adapter_drops_a_returned_value_that_is_not_a_tensor() -> None:
    entry, _, _ = watched_case.observe("double")
    result = drafted_target.make(draft_of("double"), entry, "kernels.py", "python")
    assert result is not None and result.target.entry == "double"
    assert "return result[0]" in result.files[drafted_target.ADAPTER]


def test_calls_of_other_dtypes_are_another_group_and_bfloat16_is_not_interpreted() -> None:
    calls = [ObservedCall(args={"x": tensor(4, 8, dtype="bfloat16")}, calls=9),
             ObservedCall(args={"x": tensor(4, 8)}, calls=1)]
    groups = draft_task.groups(calls)
    assert [group.dtypes for group in groups] == [("bfloat16",), ("float32",)]
    assert draft_task.choose(groups, interpret=True).dtypes == ("float32",)
    assert draft_task.choose(groups, interpret=False).dtypes == ("bfloat16",)


@pytest.mark.parametrize(("kind", "fix"), [
    ("dict", "that takes tensors and constants"), ("numpy.ndarray", r"it with config.numpy\(\)")])
def test_argument_of_an_unsupported_type_is_named_with_its_line(kind: str, fix: str) -> None:
    call = ObservedCall(args={"config": ObservedValue(kind="other", text=kind)}, calls=1)
    entry = entry_source.find("def f(config): ...", "f", "k.py")
    with pytest.raises(InputError, match=rf"k.py:7: argument 'config' is {kind}.*{fix}"):
        draft_task.draft(draft_task.groups([call])[0], entry, "k.py:7")


def test_sizes_that_are_products_or_multiples_are_expressions() -> None:
    sizes = SizeNames({})
    assert sizes.shape("x", [(4, 6), (8, 5)]) == ("rows", "cols")
    assert sizes.shape("gate", [(4, 12), (8, 10)]) == ("rows", "2*cols")
    assert sizes.number("numel", (24, 40)) == "rows*cols"
    assert sizes.number("block", (128, 128)) == 128


def test_sizes_of_a_single_call_are_symbols_unless_small() -> None:
    sizes = SizeNames({("x", 1): "hidden"})
    assert sizes.shape("x", [(64, 128, 3)]) == ("batch", "hidden", 3)


def integers(*values: int, ascending: bool = False, distinct: bool = False) -> ObservedValue:
    return ObservedValue(kind="tensor", dtype="int32", shape=(len(values),), stride=(1,),
                         low=min(values), high=max(values), ascending=ascending, distinct=distinct)


def test_integers_keep_the_structure_that_they_had_in_every_call() -> None:
    def call(rows: int, starts: ObservedValue, pages: ObservedValue,
             order: ObservedValue) -> ObservedCall:
        return ObservedCall(calls=1, returned=(tensor(rows, 8),), same=("",), args={
            "x": tensor(rows, 8), "starts": starts, "pages": pages, "order": order},
            integers={"starts": (0, 30, 90), "pages": (70, 3, 20),
                      "order": tuple(range(int(order.high or 0) + 1))})

    calls = [call(90, integers(0, 30, 90, ascending=True, distinct=True),
                  integers(70, 3, 20, distinct=True), integers(*range(6), distinct=True)),
             call(51, integers(0, 11, 51, ascending=True, distinct=True),
                  integers(48, 3, 20, distinct=True), integers(*range(7), distinct=True))]
    entry = entry_source.find("def f(x, starts, pages, order): ...", "f", "k.py")
    draft = draft_task.draft(draft_task.groups(calls)[0], entry, "k.py:1")
    args = {arg.name: arg for arg in draft.args}
    assert (args["starts"].structure, args["starts"].high) == ("offsets", "rows + 1")
    assert (args["pages"].structure, args["pages"].high) == ("distinct", "rows")
    assert (args["order"].structure, args["order"].high) == ("distinct", "n")
    assert "starts was ascending from 0 to a size in the program" in str(draft.remarks)
    result = drafted_target.make(draft, entry, "k.py", "python")
    assert result is not None
    check(result.target)
    recorded = drafted_target.with_recorded(result)
    assert recorded is not None and recorded.target.frozen_files == (drafted_target.VALUES,)
    check(recorded.target)
    assert recorded.target.classes[0].data == {
        name: f"{drafted_target.VALUES}:90x6.{name}" for name in ("starts", "pages", "order")}
    assert bytes((30, 0, 0, 0, 90, 0, 0, 0)) in recorded.files[drafted_target.VALUES]
