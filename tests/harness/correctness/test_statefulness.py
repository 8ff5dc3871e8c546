"""What a kernel must not carry from call to call, and what an honest one may."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.target import Arg, ConfigClass, Target
from tests.support import c_case, kernel_case
from tests.support.c_case import REFERENCE, RIGHT, kernel
from tests.support.check_case import check

ONE = c_case.target(classes=(ConfigClass(name="even", shape={"n": 1 << 14}),))
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
    "a thread finishes later": (
        kernel(RIGHT + "held = out; pthread_t t; pthread_create(&t, 0, later, 0); "
               "pthread_detach(t);",
               "#include <pthread.h>\nstatic float *held; static void *later(void *p) "
               "{ usleep(8000); held[7] += 1; return p; }"), "threads"),
    "writes to an earlier output": (
        kernel("if (last && last != out) last[3] = 1; last = out; " + RIGHT,
               "static float *last;"), "threads"),
}


@pytest.mark.parametrize("name", BAD_C)
def test_what_is_carried_over_is_rejected(name: str, tmp_path: Path) -> None:
    source, rule = BAD_C[name]
    wanted = replace(ONE, build=("-O2", "-pthread"))
    seen = check(tmp_path, source, wanted, reference=REFERENCE)
    assert not seen.right and set(seen.rules.values()) == {"reject"}, seen
    late = {"stale-output"} if "thread" in name else set()  # where its write lands is chance
    assert set(seen.rules) <= {rule} | late, seen
    assert seen.reason.startswith("class even: ")


NOISE = "static unsigned s = 1; s = s * 1103515245u + 12345u; "


def noisy(size: str) -> str:
    return kernel(NOISE + "for (int64_t i = 0; i < n; i++) "
                  f"out[i] = 2 * x[i] * (1 + (s >> 16 & 7) * {size});")


def test_an_unstable_kernel_is_told_and_more_than_rounding_flagged(tmp_path: Path) -> None:
    rounding = check(tmp_path / "a", noisy("6e-8f"), ONE, reference=REFERENCE,
                     baseline=kernel(RIGHT))
    assert rounding.right and rounding.rules == {"unstable": "note"}, rounding
    off = noisy("1e-4f").replace("2 * x", "2.002f * x")
    more = check(tmp_path / "b", off, ONE, reference=REFERENCE,
                 baseline=kernel("for (int64_t i = 0; i < n; i++) out[i] = 2.002f * x[i];"))
    assert more.right and more.rules == {"unstable": "flag"}, more


def test_a_task_or_a_baseline_may_be_unstable(tmp_path: Path) -> None:
    source = noisy("6e-8f")
    declared = check(tmp_path / "a", source, replace(ONE, stochastic=True), reference=REFERENCE,
                     baseline=kernel(RIGHT))
    assert declared.right and declared.rules == {}
    baseline = check(tmp_path / "b", source + "int more;", ONE, reference=REFERENCE,
                     baseline=source)
    assert baseline.right and baseline.rules == {}
    assert any("as it does with the baseline" in note for note in baseline.notes)


def test_an_unstable_kernel_that_is_wrong_at_times_is_wrong(tmp_path: Path) -> None:
    source = kernel("static int calls; " + RIGHT + "if (++calls == 3) out[5] += 9;")
    seen = check(tmp_path, source, ONE, reference=REFERENCE)
    assert not seen.right and not seen.reason and seen.rules == {"unstable": "flag"}, seen
    assert seen.errors["even"].used is not None and seen.errors["even"].used > 1


def test_an_argument_that_is_changed_in_place_is_read_again_before_every_call(
        tmp_path: Path) -> None:
    wanted = replace(ONE, args=(ONE.args[0], replace(ONE.args[1], role="inout"), ONE.args[2]))
    seen = check(tmp_path, kernel("for (int64_t i = 0; i < n; i++) out[i] += 2 * x[i];"), wanted,
                 reference="def twice(x, out):\n    return out + 2 * x\n")
    assert seen.right and seen.findings == (), seen


# Python, by its own rules: versions of weights, tensors that are returned.


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
    "a cache of what is no weight": (CACHED, False, "stale-output"),
    "a cache of weights by address": (CACHED.replace(", w._version", ""), True, "stale-output"),
    "returns one buffer again and again": (
        "import torch\nkept = torch.empty(21, 16)\n"
        "def times(x, w):\n    return torch.matmul(x, w * w, out=kept)\n", True,
        "aliased-output"),
    "allocates what it returns": ("def times(x, w):\n    return (x @ w.square())\n", True, None),
}


@pytest.mark.parametrize("name", PYTHON)
def test_python_kernels_may_keep_what_follows_a_weight(name: str, tmp_path: Path) -> None:
    source, weight, rule = PYTHON[name]
    seen = check(tmp_path, source, times(weight=weight), reference=TIMES, distributions=NORMAL)
    assert seen.rules == ({} if rule is None else {rule: "reject"}), seen
    assert seen.right == (rule is None)


STRIDED = {
    "uses strides": ("def times(x, w):\n    return x @ (w * w)\n", True),
    "takes it for contiguous": (
        "import torch\ndef times(x, w):\n"
        "    flat = torch.as_strided(x, x.shape, (x.shape[1], 1))\n"
        "    return flat @ (w * w)\n", False)}


@pytest.mark.parametrize("name", STRIDED)
def test_a_kernel_that_says_it_takes_strides_is_checked_on_views(name: str,
                                                                 tmp_path: Path) -> None:
    source, right = STRIDED[name]
    plain = times()
    strided = replace(plain, args=tuple(replace(arg, strided=True) for arg in plain.args))
    assert check(tmp_path / "a", source, strided, reference=TIMES,
                 distributions=NORMAL).right == right
    if not right:
        assert check(tmp_path / "b", source, plain, reference=TIMES, distributions=NORMAL).right


def test_a_view_must_be_written_in_its_own_elements_only(tmp_path: Path) -> None:
    of = kernel_case.target(language="python", classes=(ConfigClass(name="a", shape={"n": 40}),))
    of = replace(of, args=(of.args[0], replace(of.args[1], strided=True)))
    source = ("import torch\ndef double(x, out):\n    out.copy_(2 * x)\n"
              "    if out.stride(0) > 1: torch.as_strided(out, (79,), (1,))[1::2] = 0\n")
    seen = check(tmp_path, source, of, reference=kernel_case.REFERENCE, distributions=NORMAL)
    assert "wrote between its elements" in seen.reason, seen


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_eight_bit_floats_are_checked_like_others(dtype: str, tmp_path: Path) -> None:
    of = kernel_case.target(language="python", dtype=dtype,
                            classes=(ConfigClass(name="a", shape={"n": 300}),))
    for factor, right in ((2.0, True), (1.5, False)):
        source = f"def double(x, out):\n    out.copy_({factor} * x.float())\n"
        seen = check(tmp_path / str(factor), source, of, reference=kernel_case.REFERENCE,
                     distributions=NORMAL)
        assert seen.right == right, seen
        assert not right or seen.errors["a"].relative == 0.0


SKIPPING = {
    "raises": ("def double(x, out):\n    if x.numel() % 2: raise NotImplementedError('odd')\n"
               "    out.copy_(2 * x)\n", "class odd: .*NotImplementedError: odd"),
    "runs out of memory": ("import torch\ndef double(x, out):\n    if x.numel() % 2: "
                           "torch.empty(1 << 50)\n    out.copy_(2 * x)\n", "class odd: .*memory"),
    "returns": ("def double(x, out):\n    if x.numel() % 2: return\n    out.copy_(2 * x)\n", ""),
}


@pytest.mark.parametrize("name", SKIPPING)
def test_a_shape_that_is_skipped_is_a_failure(name: str, tmp_path: Path) -> None:
    source, reason = SKIPPING[name]
    seen = check(tmp_path, source, kernel_case.target(language="python", classes=(
        ConfigClass(name="even", shape={"n": 30}), ConfigClass(name="odd", shape={"n": 31}))),
        reference=kernel_case.REFERENCE, distributions=NORMAL)
    assert not seen.right and bool(seen.reason) == bool(reason)
    assert re.match(reason, seen.reason), seen.reason
    assert seen.reason or seen.errors["odd"].bad == 31
