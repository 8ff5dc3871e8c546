"""Errors on unusual, untimed cases count if the baseline is right: values, memory, modes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.child.oracle.arrays_numpy import NumpyArrays
from harness.child.oracle.inputs import draw
from harness.correctness.untimed_checks import FEW, sampled_cases
from harness.tasks.target import Arg, ConfigClass, Target
from tests.support.kernels.c_case import HEAD, QUICK, SLOW, judge, kernel, target

TWICE = target(classes=(ConfigClass(name="even", shape={"n": 8189}),))
ONE_PAIR = replace(QUICK, looks=(2,))
LOOP = "for (int64_t i = 0; i < n; i++) "


def without(test: str) -> str:
    """Return a kernel that answers NaN where a test of `x[i]` holds."""
    return kernel(f"{LOOP}out[i] = {test} ? 0.0f / 0.0f : 2 * x[i];\n")


NOT_LARGE = without("x[i] > 150")
CLEAN = kernel(f"{LOOP}out[i] = x[i] != x[i] ? 0 : x[i] > 1e5f ? 2e5f : 2 * x[i];\n")
CLEANS = "import numpy as np\ndef twice(x):\n    return 2 * np.clip(np.nan_to_num(x), None, 1e5)\n"
READS = "static volatile float seen; seen = {}; " + LOOP + "out[i] = 2 * x[i];\n"
MODE = """unsigned mode = __builtin_ia32_stmxcsr();
__builtin_ia32_ldmxcsr(mode | 0x8040);
for (int64_t i = 0; i < n; i++) out[i] = 2 * x[i];
"""
OTHER_MODE = "class even: OSError: the kernel, or the loading of it, leaves the processor in "
LOADED = """__attribute__((constructor)) static void at_load(void) {
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("source", "incumbent", "reference", "words"), [
    (NOT_LARGE, SLOW, "", "is wrong on values of several hundred (n=8189)"),
    (without("x[i] > 950"), SLOW, "", "is wrong on values near 1000 (n=8189)"),
    (NOT_LARGE, NOT_LARGE + "/* before */\n", "", ""),
    (kernel(f"{LOOP}out[i] = x[i] != x[i] ? 0 : 2 * x[i];\n"), CLEAN, CLEANS,
     "is wrong on values near a million or infinite (n=8189)"),
    (kernel(f"{LOOP}out[i] = x[i] > 1e5f ? 2e5f : 2 * x[i];\n"), CLEAN, CLEANS,
     "is wrong on values that are not a number (n=8189)"),
    (kernel(READS.format("x[n + 16]")), SLOW, "", "fails (crashed (SIGSEGV)) on arrays beside "),
    (kernel(READS.format("x[-16]")), SLOW, "", "fails (crashed (SIGSEGV)) on arrays beside "),
    (kernel(READS.format("x[n + 16]")), kernel(READS.format("x[n + 17]")), "", ""),
    (kernel(READS.format("x[(n | 15)]")), SLOW, "", ""),
    (kernel(MODE), SLOW, "", OTHER_MODE),
    (kernel(MODE + "__builtin_ia32_ldmxcsr(mode);\n"), SLOW, "", ""),
    (LOADED + SLOW, SLOW, "", OTHER_MODE),
    (LOADED + SLOW, LOADED + SLOW + "/* before */\n", "", ""),
    (kernel(MODE), kernel(MODE) + "/* before */\n", "", ""),
], ids=["large", "far", "large, as the baseline", "infinite", "not a number", "past the end",
        "before the beginning", "past the end, as the baseline", "to the end of the cache line",
        "other mode", "mode set back", "other mode when loaded", "other mode when loaded, as the "
        "baseline", "other mode, as the baseline"])
def test_gross_errors_on_unusual_cases_count_where_the_baseline_is_right(
        source: str, incumbent: str, reference: str, words: str, tmp_path: Path) -> None:
    verdict = judge(tmp_path, source, incumbent=incumbent, task=TWICE, plan=ONE_PAIR,
                    **({"reference": reference} if reference else {}))
    assert verdict.valid is (not words), verdict
    assert (verdict.rejected_reason or "").startswith(words)


def scaled(**bounds: float) -> Target:
    """Return a target with a factor that is 1 in every class."""
    return replace(TWICE, args=(*TWICE.args, Arg(name="f", dtype="float32", value=1.0, **bounds)))


TIMES = HEAD.replace("int64_t n)", "int64_t n, float f)")


@pytest.mark.parametrize(("task", "is_valid"), [
    (scaled(), False), (scaled(low=1.0, high=1.0), True)], ids=["any value", "fixed"])
def test_ignored_scalar_is_an_error_unless_the_task_fixes_its_value(
        task: Target, is_valid: bool, tmp_path: Path) -> None:
    verdict = judge(
        tmp_path, TIMES + f"{LOOP}out[i] = 2 * x[i];\n}}\n", task=task, plan=ONE_PAIR,
        incumbent=TIMES + f"{LOOP}{{ float v = x[i]; for (int k = 0; k < 4; k++) "
        "v = v / 3.0f * 3.0f; out[i] = 2 * f * v; }\n}\n",
        reference="def twice(x, f):\n    return 2 * f * x\n")
    assert verdict.valid is is_valid, verdict
    assert is_valid or (verdict.rejected_reason or "").startswith("is wrong on other values of f ")


def normalised(eps: str) -> str:
    """Return a kernel that divides by a root mean square with `eps` added, as RMS norm does."""
    return kernel(f"double sum = 0; {LOOP}sum += (double)x[i] * x[i];\n"
                  f"{LOOP}out[i] = x[i] / __builtin_sqrt(sum / n + {eps});\n")


def test_another_eps_is_an_error_though_it_shows_on_small_values_only(tmp_path: Path) -> None:
    reference = "def twice(x):\n    return x / ((x * x).mean() + 1e-7) ** 0.5\n"
    for eps, words in (("1e-8", "is wrong on values of about a thousandth (n=8189)"),
                       ("10e-8", "")):
        verdict = judge(tmp_path / eps, normalised(eps), incumbent=normalised("1e-7"), task=TWICE,
                        plan=ONE_PAIR, reference=reference)
        assert (verdict.rejected_reason or "").startswith(words), verdict
        assert verdict.valid is (not words), verdict


@pytest.mark.parametrize(("source", "incumbent", "reference", "words"), [
    ("x[i]", "x[i] & 1", "x % 2", "is wrong on integers of the whole range of their dtype"),
    ("x[i] & 1", "(x[i] % 2 + 2) % 2", "x % 2", ""),
    ("x[i]", "x[i] + 0", "np.arange(2)[x]", "")], ids=["wrong", "right", "of a table"])
def test_integers_without_a_range_are_tried_as_far_as_the_reference_answers(
        source: str, incumbent: str, reference: str, words: str, tmp_path: Path) -> None:
    """The reference of the last one raises an error for an index outside of its table."""
    task = replace(TWICE, args=tuple(replace(arg, dtype="int32") if arg.shape else arg
                                     for arg in TWICE.args))
    ints = HEAD.replace("float", "int32_t")
    verdict = judge(
        tmp_path, ints + f"{LOOP}out[i] = {source};\n}}\n", task=task, plan=ONE_PAIR,
        incumbent=ints + f"{LOOP}out[i] = {incumbent};\n}}\n",
        reference=f"import numpy as np\ndef twice(x):\n    return {reference}\n")
    assert verdict.valid is (not words), verdict
    assert (verdict.rejected_reason or "").startswith(words)


def test_bounded_values_stay_bounded_on_unusual_cases() -> None:
    arrays = NumpyArrays()
    for dtype, bounds in (("float32", (-3.0, 5.0)), ("int32", (2, 9))):
        tensor: dict[str, Any] = {"dtype": dtype, "shape": [40, 40], "low": bounds[0],
                                  "high": bounds[1]}
        for kind in ("small", "large", "far", "extreme", "nan", "unbounded"):
            values = draw(arrays, tensor, 7, kind)
            assert bounds[0] <= values.min() and values.max() <= bounds[1], (dtype, kind)


@pytest.mark.parametrize(("outputs", "fields", "written", "count"), [
    (1, {}, "bfloat16", 4), (2, {}, "float16", 4), (3, {}, "float16", 0), (0, {}, "float16", 0),
    (1, {}, "float32", 0), (1, {"low": 0.0}, "float16", 0), (1, {"dtype": "int8"}, "float16", 0)],
    ids=["a sum", "long rows", "short rows", "no answer", "float32", "bounded", "integers"])
def test_only_coarse_long_sums_get_inputs_that_are_equal_in_nearly_all_places(
        outputs: int, fields: dict[str, Any], written: str, count: int) -> None:
    x, out, *others = TWICE.args
    task = replace(TWICE, args=(replace(x, **fields), replace(out, dtype=written), *others))
    cases = list(sampled_cases(task, ConfigClass(name="sum", shape={"n": 8192}), outputs))
    assert [case.distribution for case in cases] == ["low", "high", "low", "high"][:count]
    for case in cases:
        values = draw(NumpyArrays(), {"dtype": "float32", "shape": [8192], "low": None,
                                      "high": None, **case.changed["x"]}, 7, case.distribution)
        places = np.count_nonzero(values != {"low": -16, "high": 16}[case.distribution])
        assert 0 < places < 8 * FEW * outputs, places


@pytest.mark.parametrize("library", [
    "numpy", "cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_lost_column_is_an_error_and_another_order_of_sums_is_not(
        library: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((300, 200)), rng.standard_normal((200, 100))
    want = a @ (b * 10.0 ** -np.arange(100) ** 0.5)
    narrow = (b * 10.0 ** -np.arange(100) ** 0.5).astype("float32")
    honest = np.add.reduce(np.flip(a.astype("float32")[:, :, None] * narrow, axis=1), axis=1)
    without_last = np.where(np.arange(100) < 90, honest, 0).astype("float32")
    without_rows = np.where(np.arange(300)[:, None] % 50 < 49, honest, 0).astype("float32")
    arrays: Any = NumpyArrays()
    made: Any = np.asarray
    if library != "numpy":
        import torch  # here: every test worker imports this file

        from harness.child.oracle.arrays_torch import TorchArrays

        arrays = TorchArrays(library, ["float32"], str(tmp_path))
        made = partial(torch.as_tensor, device=library)
    share = [arrays.lost(made(got), made(want)) for got in (honest, without_last, without_rows)]
    assert share[0] < 1e-3 and share[1:] == pytest.approx([1.0, 1.0])
    assert arrays.lost(made(without_last.reshape(-1)), made(want.reshape(-1))) < 0.5


@pytest.mark.slow
def test_fast_math_of_the_task_may_change_the_mode_when_a_library_is_loaded(tmp_path: Path) -> None:
    task = replace(TWICE, build=("-O2", "-ffast-math"))
    verdict = judge(tmp_path, SLOW + "/* after */\n", incumbent=SLOW, task=task, plan=ONE_PAIR)
    assert verdict.valid, verdict
