"""State that a kernel carries from call to call is rejected, unless an honest kernel needs it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.tasks.target import Arg, ConfigClass, Target
from tests.support.kernels import c_case, kernel_case
from tests.support.kernels.c_case import REFERENCE, RIGHT, kernel
from tests.support.kernels.check_case import check

ONE_CLASS = c_case.target(classes=(ConfigClass(name="even", shape={"n": 1 << 14}),))
NORMAL = ("normal",)


BAD_C = {
    "keeps its answer by address": (
        kernel("if (x == last && n == size) { memcpy(out, kept, 4 * n); return; } " + RIGHT +
               "last = x; size = n; memcpy(kept, out, 4 * n);",
               "static const float *last; static int64_t size; static float kept[1 << 16];"),
        "stale-output"),
    "keeps its answer by a sample": (
        kernel("float s = x[0] + x[n / 2] + x[n - 1]; if (s == last) { memcpy(out, kept, 4 * n); "
               "return; } " + RIGHT + "last = s; memcpy(kept, out, 4 * n);",
               "static float last, kept[1 << 16];"), "stale-output"),
    # starts a thread only on new contents: a repeated call may come before the late write
    "a thread finishes later": (
        kernel(RIGHT + "if (!calls++) memcpy(old, x, 4 * n); if (!memcmp(old, x, 4 * n)) return; "
               "held = out; pthread_t t; pthread_create(&t, 0, later, 0); pthread_detach(t);",
               "#include <pthread.h>\nstatic int calls; static float old[1 << 14], *held; "
               "static void *later(void *p) { usleep(8000); held[7] += 1; return p; }"),
        "threads"),
    "writes to an earlier output": (
        kernel("if (last && last != out) last[3] = 1; last = out; " + RIGHT,
               "static float *last;"), "threads"),
}


@pytest.mark.parametrize("name", BAD_C)
def test_state_carried_between_calls_is_rejected(name: str, tmp_path: Path) -> None:
    source, rule = BAD_C[name]
    task = replace(ONE_CLASS, build=("-O2", "-pthread"))
    result = check(tmp_path, source, task, reference=REFERENCE, baseline=kernel(RIGHT))
    assert not result.right and set(result.rules.values()) == {"reject"}, result
    # its late write may fall into either check
    late = {"stale-output"} if "thread" in name else set()
    assert set(result.rules) <= {rule} | late, result
    assert result.reason.startswith("class even: ")


def test_kernel_whose_repeated_call_answers_wrong_is_incorrect(tmp_path: Path) -> None:
    source = kernel(RIGHT + "out[7] += calls++ % 2;", "static int calls;")
    result = check(tmp_path, source, ONE_CLASS, reference=REFERENCE, baseline=kernel(RIGHT))
    assert not result.right and "not all of them correct" in result.findings[0].detail, result


NOISE = "static unsigned s = 1; s = s * 1103515245u + 12345u; "


def noisy(size: str) -> str:
    return kernel(NOISE + "for (int64_t i = 0; i < n; i++) "
                  f"out[i] = 2 * x[i] * (1 + (s >> 16 & 7) * {size});")


@pytest.mark.slow
def test_unstable_kernel_gets_a_note_within_rounding_and_a_flag_beyond(tmp_path: Path) -> None:
    rounding = check(tmp_path / "a", noisy("6e-8f"), ONE_CLASS, reference=REFERENCE,
                     baseline=kernel(RIGHT))
    assert rounding.right and rounding.rules == {"unstable": "note"}, rounding
    off = noisy("1e-4f").replace("2 * x", "2.002f * x")
    more = check(tmp_path / "b", off, ONE_CLASS, reference=REFERENCE,
                 baseline=kernel("for (int64_t i = 0; i < n; i++) out[i] = 2.002f * x[i];"))
    assert more.right and more.rules == {"unstable": "flag"}, more


@pytest.mark.slow
def test_unstable_task_or_baseline_excuses_an_unstable_kernel(tmp_path: Path) -> None:
    source = noisy("6e-8f")
    declared = check(
        tmp_path / "a",
        source,
        replace(ONE_CLASS, stochastic=True),
        reference=REFERENCE,
        baseline=kernel(RIGHT),
    )
    assert declared.right and declared.rules == {}
    baseline = check(tmp_path / "b", source + "int more;", ONE_CLASS, reference=REFERENCE,
                     baseline=source)
    assert baseline.right and baseline.rules == {}
    assert any("as with the baseline" in note for note in baseline.notes)


def test_kernel_that_is_wrong_at_times_is_incorrect(tmp_path: Path) -> None:
    source = kernel("static int calls; " + RIGHT + "if (++calls == 3) out[5] += 9;")
    result = check(tmp_path, source, ONE_CLASS, reference=REFERENCE)
    assert not result.right and not result.reason and result.rules == {"unstable": "flag"}, result
    assert result.errors["even"].used is not None and result.errors["even"].used > 1


def test_inout_argument_is_restored_before_every_call(
        tmp_path: Path) -> None:
    task = replace(
        ONE_CLASS,
        args=(ONE_CLASS.args[0], replace(ONE_CLASS.args[1], role="inout"), ONE_CLASS.args[2]),
    )
    result = check(tmp_path, kernel("for (int64_t i = 0; i < n; i++) out[i] += 2 * x[i];"), task,
                   reference="def twice(x, out):\n    return out + 2 * x\n")
    assert result.right and result.findings == (), result


# Python kernels: caches of weights, reuse of returned tensors, strided arguments


def times(**fields: object) -> Target:
    weight = fields.pop("weight", True)
    return kernel_case.target(language="python", op="times", entry="times",
                              reference="reference.py:times", returns=True, args=(
                                  Arg(name="x", dtype="float32", shape=("n", 16)),
                                  Arg(name="w", dtype="float32", shape=(16, 16),
                                      weight=bool(weight))),
                              classes=(ConfigClass(name="odd", shape={"n": 21}),), **fields)


TIMES = "def times(x, w):\n    return x @ (w * w)\n"
CACHED = """
cache = {}
def times(x, w):
    key = w.data_ptr(), w._version
    if key not in cache:
        cache[key] = w * w
    return x @ cache[key]
"""
PYTHON = {
    "a cache of weights by version": (CACHED, True, None),
    "a cache of what is not a weight": (CACHED, False, "stale-output"),
    "a cache of weights by address": (CACHED.replace(", w._version", ""), True, "stale-output"),
    "returns one buffer again and again": (
        "import torch\nkept = torch.empty(21, 16)\n"
        "def times(x, w):\n    return torch.matmul(x, w * w, out=kept)\n", True,
        "aliased-output"),
    "allocates what it returns": ("def times(x, w):\n    return (x @ w.square())\n", True, None),
}


@pytest.mark.parametrize("name", PYTHON)
def test_only_a_cache_keyed_by_weight_version_may_outlive_a_call(name: str, tmp_path: Path) -> None:
    source, weight, rule = PYTHON[name]
    result = check(tmp_path, source, times(weight=weight), reference=TIMES, distributions=NORMAL)
    assert result.rules == ({} if rule is None else {rule: "reject"}), result
    assert result.right == (rule is None)


STRIDED = {
    "uses strides": ("def times(x, w):\n    return x @ (w * w)\n", True),
    "takes it for contiguous": (
        "import torch\ndef times(x, w):\n"
        "    flat = torch.as_strided(x, x.shape, (x.shape[1], 1))\n"
        "    return flat @ (w * w)\n", False)}


@pytest.mark.parametrize("name", STRIDED)
def test_declared_strided_arguments_are_checked_as_views(name: str,
                                                         tmp_path: Path) -> None:
    source, right = STRIDED[name]
    plain = times()
    strided = replace(plain, args=tuple(replace(arg, strided=True) for arg in plain.args))
    assert check(tmp_path / "a", source, strided, reference=TIMES,
                 distributions=NORMAL).right == right
    if not right:
        assert check(tmp_path / "b", source, plain, reference=TIMES, distributions=NORMAL).right


def test_write_between_the_elements_of_a_view_is_rejected(tmp_path: Path) -> None:
    task = kernel_case.target(language="python", classes=(ConfigClass(name="a", shape={"n": 40}),))
    task = replace(task, args=(task.args[0], replace(task.args[1], strided=True)))
    source = ("import torch\ndef double(x, out):\n    out.copy_(2 * x)\n"
              "    if out.stride(0) > 1: torch.as_strided(out, (79,), (1,))[1::2] = 0\n")
    result = check(tmp_path, source, task, reference=kernel_case.REFERENCE, distributions=NORMAL)
    assert "wrote between the elements of out" in result.reason, result


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_outputs_are_checked(dtype: str, tmp_path: Path) -> None:
    task = kernel_case.target(language="python", dtype=dtype,
                              classes=(ConfigClass(name="a", shape={"n": 300}),))
    for factor, right in ((2.0, True), (1.5, False)):
        source = f"def double(x, out):\n    out.copy_({factor} * x.float())\n"
        result = check(tmp_path / str(factor), source, task, reference=kernel_case.REFERENCE,
                       distributions=NORMAL)
        assert result.right == right, result
        assert not right or result.errors["a"].relative == 0.0


SKIPPING = {
    "raises": ("def double(x, out):\n    if x.numel() % 2: raise NotImplementedError('odd')\n"
               "    out.copy_(2 * x)\n", "class odd: .*NotImplementedError: odd"),
    "runs out of memory": ("import torch\ndef double(x, out):\n    if x.numel() % 2: "
                           "torch.empty(1 << 50)\n    out.copy_(2 * x)\n", "class odd: .*memory"),
    "returns": ("def double(x, out):\n    if x.numel() % 2: return\n    out.copy_(2 * x)\n", ""),
}


@pytest.mark.parametrize("name", SKIPPING)
def test_skipped_shape_is_a_failure(name: str, tmp_path: Path) -> None:
    source, reason = SKIPPING[name]
    result = check(tmp_path, source, kernel_case.target(language="python", classes=(
        ConfigClass(name="even", shape={"n": 30}), ConfigClass(name="odd", shape={"n": 31}))),
        reference=kernel_case.REFERENCE, distributions=NORMAL)
    assert not result.right and bool(result.reason) == bool(reason)
    assert re.match(reason, result.reason), result.reason
    assert result.reason or result.errors["odd"].bad == 31
