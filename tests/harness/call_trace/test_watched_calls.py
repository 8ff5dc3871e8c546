"""A watched function's calls: its arguments, what it writes, what it returns, and its callers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.call_trace import watched_calls
from harness.call_trace.watched_calls import WatchedFunction, WatchedProgram
from tests.support.kernels import watched_case


def watch_own(folder: Path, *, line: int, interpret: bool = False) -> WatchedProgram:
    """Run a folder's own.py, whose function `f` begins in a line, and watch its calls."""
    return watched_calls.watch([sys.executable, "own.py"], WatchedFunction(
        file=str(folder / "own.py"), name="f", lines=(line,)), folder, interpret=interpret)


def test_calls_are_counted_by_shape_with_their_values() -> None:
    _, observed, _ = watched_case.observe("norm")
    assert observed.outcome.ok, observed.outcome.stderr
    assert [(call.args["x"].shape, call.calls) for call in observed.calls] == [
        ((4, 32), 2), ((7, 33), 1), ((5, 64), 1)]
    first = observed.calls[0]
    assert list(first.args) == ["x", "weight", "eps", "mode"] and first.keywords == ("mode",)
    assert (first.args["x"].dtype, first.args["x"].stride) == ("float32", (32, 1))
    assert (first.args["eps"].value, first.args["mode"].value) == (1e-5, "fast")
    assert first.written == () and [value.shape for value in first.returned] == [(4, 32)]


def test_call_that_raises_is_recorded_as_failed() -> None:
    _, observed, _ = watched_case.observe("norm")
    assert [args["x"].shape for args in observed.failed] == [(3, 1)]


@pytest.mark.slow  # another program that imports torch
def test_written_argument_and_index_range_are_seen() -> None:
    _, observed, _ = watched_case.observe("gather")
    [call] = observed.calls
    assert call.written == ("out",) and call.same == ("out",)
    assert (call.args["index"].low, call.args["index"].high) == (0, 7)
    assert call.args["scale"].kind == "literal" and call.args["scale"].value is None


def test_caller_shows_which_variable_is_which_argument_and_which_is_expected() -> None:
    _, observed, _ = watched_case.observe("norm")
    caller = next(each for each in observed.callers if each.function == "test_norm")
    seen = {local.name: (local.argument, local.output, local.near) for local in caller.locals}
    assert seen["w"] == ("weight", -1, -1)
    assert (seen["y"], seen["expected"]) == (("", 0, -1), ("", -1, 0))


@pytest.mark.slow
def test_forward_of_an_autograd_function_is_watched_through_its_apply() -> None:
    entry, observed, _ = watched_case.observe("double")
    [call] = observed.calls
    assert (entry.name, list(call.args)) == ("forward", ["ctx", "x"])
    assert [value.kind for value in call.returned] == ["tensor", "literal"] and not call.single


@pytest.mark.slow
def test_method_shows_constructor_arguments_weights_and_mode_of_its_object() -> None:
    _, observed, _ = watched_case.observe("Scale.forward")
    first = observed.calls[0]
    assert first.members == {"init_dim": "init:", "init_factor": "init:", "init_bias": "init:bias=",
                             "training": "training", "weight_": "weight:weight"}
    assert [first.args[name].value for name in ("init_dim", "init_bias", "training")] == [
        32, False, True]
    assert first.args["weight_"].shape == (32,) and first.grads == ("x", "weight_")


def test_script_that_calls_its_own_function_is_watched(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def f(n):\n    return n\n\n\nf(3)\nf(3)\n")
    observed = watch_own(tmp_path, line=1)
    assert [(call.args["n"].value, call.calls) for call in observed.calls] == [(3, 2)]


def test_caller_is_recorded_when_it_returns_and_nothing_of_it_is_kept(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import weakref\n\ndef f(n):\n    return n\n\n\nclass Large:\n    pass\n\n\n"
        "def test(n):\n    large, twice = Large(), 2 * n\n    alive.append(weakref.ref(large))\n"
        "    f(n)\n    later = 5\n\n\nalive = []\ntest(3)\nkept = sum(ref() is not None for ref in "
        "alive)\nf(kept)\n")
    observed = watch_own(tmp_path, line=3)
    assert [call.args["n"].value for call in observed.calls] == [3, 0]
    caller = next(each for each in observed.callers if each.function == "test")
    assert {local.name: local.value.value for local in caller.locals} == {
        "n": 3, "twice": 6, "later": 5}
    assert any(each.function == "<module>" for each in observed.callers)


def test_call_that_raises_in_a_with_block_is_recorded_as_failed(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import contextlib\n\ndef f(n):\n    with contextlib.nullcontext():\n"
        "        raise KeyError(n)\n\ntry:\n    f(3)\nexcept KeyError:\n    pass\n")
    observed = watch_own(tmp_path, line=3)
    assert observed.calls == () and len(observed.failed) == 1


@pytest.mark.slow
def test_file_of_a_kernel_that_a_call_launches_is_recorded(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "kernels.py").write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef fill(x, n):\n"
        "    tl.store(x, n)\n")
    (tmp_path / "own.py").write_text(
        "import torch\nfrom kernels import fill\n\ndef f(x):\n    fill[(1,)](x, 3)\n\n\n"
        "from triton.testing import do_bench\nx = torch.zeros(1)\n"
        "low, high = do_bench(lambda: f(x), quantiles=[0.2, 0.8])\nassert low > 0\n")
    observed = watch_own(tmp_path, line=4, interpret=True)
    assert observed.calls[0].written == ("x",)
    assert observed.kernels == (str(tmp_path / "kernels.py"),)


def test_variables_before_the_program_are_set_for_it(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "own.py").write_text("def f(n):\n    return n\n")
    observed = watched_calls.watch(
        ["env", "PYTHONPATH=lib", "N=3", sys.executable, "-c",
         "import os, own; own.f(int(os.environ['N']))"], WatchedFunction(
            file=str(tmp_path / "lib" / "own.py"), name="f", lines=(1,)), tmp_path, interpret=False)
    assert [call.args["n"].value for call in observed.calls] == [3]


@pytest.mark.slow
def test_callers_of_every_kind_of_call_are_kept(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "own.py").write_text(
        "import torch\n\ndef f(x, mode):\n    return 2 * x\n\n\ndef test(mode, n):\n"
        "    x = torch.ones(n)\n    y = f(x, mode)\n    expected = x + x\n\n\n"
        "for mode in ('a', 'b', None):\n    for n in range(1, 9):\n        test(mode, n)\n")
    observed = watch_own(tmp_path, line=3)
    kept = [caller.call.args["mode"].value for caller in observed.callers
            if caller.function == "test"]
    assert {*kept} == {"a", "b", None} and max(map(kept.count, kept)) <= 4
