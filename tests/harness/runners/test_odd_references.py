"""References with no answer, with part of one, or with too little memory on the card."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.compile.place import place_on
from harness.devices import inventory
from harness.runners.oracle_client import Oracle, OracleError
from harness.runners.slots.case_memory import CaseMemory
from harness.tasks.target import Arg, ConfigClass, Target
from tests.support.judging.stub_runner import StubRunner
from tests.support.kernels import kernel_case
from tests.support.kernels.c_case import tree
from tests.support.programs import shared_zygotes

ROWS = ConfigClass(name="rows", shape={"n": 32})
MASKED = """
import torch
def double(x):
    out = 2 * x
    out[3], out[5] = float("inf"), float("nan")
    return out
"""
PICKED = """
import torch
def double(x, at):
    return x[at]
"""
NO_ROOM = """
import torch
calls = []
def double(x):
    calls.append(x.device.type)
    if len(calls) % 3:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB")
    return 2 * x
"""
LARGE = """
import torch
def double(x):
    return torch.stack([x * k for k in range(8)]).sum(0) / 14
"""
"""Needs sixteen times the memory of its input."""


def target(*more: Arg, language: str = "python") -> Target:
    args = kernel_case.target().args
    return kernel_case.target(classes=(ROWS,), language=language, args=(args[0], *more, args[1]))


def oracle(folder: Path, task: Target, reference: str, device: str = "cpu") -> Oracle:
    base = Path(tree(folder / "base", "", reference))
    place = place_on(inventory.find(device), task.language, scratch=str(folder),
                     python=None, env={})
    zygote = shared_zygotes.for_place(place, task.language) if device == "cpu" else None
    return Oracle(task, base, folder / "io", replace(place, zygote=zygote))


@pytest.fixture
def masked(tmp_path: Path) -> Iterator[Oracle]:
    with oracle(tmp_path, target(), MASKED) as started:
        yield started


@pytest.mark.parametrize(("place", "value", "bad"), [
    (5, 7.0, 0), (3, 7.0, 1), (3, -math.inf, 1), (4, math.nan, 1)],
    ids=["instead of NaN", "instead of infinity", "the other infinity", "NaN instead of a number"])
def test_finite_and_infinite_expected_values_are_compared_and_nan_is_not(
        place: int, value: float, bad: int, masked: Oracle) -> None:
    case = masked.make(ROWS, "normal")
    assert case.notes == ("2 of 32 expected values of out are not finite in float32, the first at "
                          "index 3: of these, only infinite ones were compared",)
    runner = StubRunner()
    memory = CaseMemory(masked, runner.peer, case)
    memory.place(case)
    answer = [2 * x for x in runner.values("x")]
    answer[3], answer[5] = math.inf, math.nan
    runner.view("out")[:] = answer
    assert memory.judge(case).within(1e-6)
    runner.view("out")[place] = value
    assert memory.judge(case).bad == bad


def test_reference_with_mostly_non_finite_outputs_is_an_error(tmp_path: Path) -> None:
    with oracle(tmp_path, target(), "def double(x):\n    return (-x.abs()).log()\n") as started:
        with pytest.raises(OracleError, match=r"on normal inputs 32 of 32 .* declare low, high or"):
            started.make(ROWS, "normal")
        assert "on heavy inputs 32 of 32" in started.make(ROWS, "heavy").skip


def test_index_out_of_range_names_the_input_and_what_to_write(tmp_path: Path) -> None:
    at = Arg(name="at", dtype="int64", shape=("n",), low=0, high=1 << 40)
    with oracle(tmp_path, target(at), PICKED) as started, \
            pytest.raises(OracleError, match="an index is out of range on normal inputs: at is "
                          "drawn from 0 to 1099511627775: write low and high") as caught:
        started.make(ROWS, "normal")
    assert not caught.value.may_pass


def test_error_on_a_parameter_that_is_no_input_lists_the_inputs(tmp_path: Path) -> None:
    with oracle(tmp_path, target(), "def double(y):\n    return 2 * y\n") as started, \
            pytest.raises(OracleError, match="its parameter y is not an input of the task, whose "
                          "inputs are x"):
        started.make(ROWS, "normal")


def test_reference_that_runs_out_of_memory_twice_runs_on_the_cpu_with_a_note(
        tmp_path: Path) -> None:
    with oracle(tmp_path, target(), NO_ROOM) as started:
        case = started.make(ROWS, "normal")
        assert case.notes == ("the reference ran on the CPU: it does not fit in the card's memory",)
        assert started.sensitivity(case, 1e-3)[0] == pytest.approx(1e-3, rel=0.01)


@pytest.mark.gpu
def test_index_out_of_range_on_a_card_is_reported_by_every_later_request(tmp_path: Path) -> None:
    at = Arg(name="at", dtype="int64", shape=("n",), low=0, high=1 << 40)
    with oracle(tmp_path, target(at), PICKED, "auto") as started:
        for _ in range(2):
            with pytest.raises(OracleError, match=r"index is out of range .* at is") as caught:
                started.make(ROWS, "wide")
            assert not caught.value.may_pass


@pytest.mark.gpu
def test_reference_for_which_a_card_has_no_room_runs_on_the_cpu(tmp_path: Path) -> None:
    import torch

    large = replace(ROWS, shape={"n": 1 << 28})
    held = torch.empty(torch.cuda.mem_get_info()[0] - (14 << 30), dtype=torch.uint8, device="cuda")
    with oracle(tmp_path, replace(target(), classes=(large,)), LARGE, "auto") as started:
        case = started.make(large, "normal")
        assert case.notes == ("the reference ran on the CPU: it does not fit in the card's memory",)
        started.drop(case)
        del held
        torch.cuda.empty_cache()
        assert started.make(large, "normal").notes == ()
