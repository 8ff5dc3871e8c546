"""What a kernel must not carry from call to call, and what an honest one may."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.target import Arg, ConfigClass, Target
from harness.verdict import Verdict
from tests import c_case, kernel_case
from tests.c_case import QUICK, RIGHT, kernel

ONE = c_case.target(classes=(ConfigClass(name="even", shape={"n": 1024}),))
FAST = replace(QUICK, looks=(2,))


def rules(verdict: Verdict) -> dict[str, str]:
    return {finding.rule: finding.severity for finding in verdict.audit}


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
    verdict = c_case.judge(tmp_path, source, wanted=wanted, plan=FAST)
    assert not verdict.valid and rules(verdict) == {rule: "reject"}, verdict
    assert (verdict.rejected_reason or "").startswith("class even: ")


NOISE = "static unsigned s = 1; s = s * 1103515245u + 12345u; "


def test_an_unstable_kernel_is_flagged_unless_its_task_is(tmp_path: Path) -> None:
    source = kernel(NOISE + "for (int64_t i = 0; i < n; i++) "
                    "out[i] = 2 * x[i] * (1 + (s >> 16 & 7) * 6e-8f);")
    verdict = c_case.judge(tmp_path / "a", source, wanted=ONE, plan=FAST)
    assert verdict.correct and rules(verdict) == {"unstable": "flag"}, verdict
    declared = c_case.judge(tmp_path / "b", source, plan=FAST,
                            wanted=replace(ONE, stochastic=True))
    assert declared.correct and declared.audit == ()
    assert any("stochastic" in note for note in declared.notes)
    baseline = c_case.judge(tmp_path / "c", source + "int more;", incumbent=source, wanted=ONE,
                            plan=FAST)
    assert baseline.correct and baseline.audit == ()
    assert any("as it does with the baseline" in note for note in baseline.notes)


def test_an_unstable_kernel_that_is_wrong_at_times_is_wrong(tmp_path: Path) -> None:
    source = kernel("static int calls; " + RIGHT + "if (++calls == 3) out[5] = 0;")
    verdict = c_case.judge(tmp_path, source, wanted=ONE, plan=FAST)
    assert verdict.valid and not verdict.correct
    assert rules(verdict) == {"unstable": "flag"}


def test_an_argument_that_is_changed_in_place_is_read_again_before_every_call(
        tmp_path: Path) -> None:
    wanted = replace(ONE, args=(ONE.args[0], replace(ONE.args[1], role="inout"), ONE.args[2]))
    verdict = c_case.judge(
        tmp_path, kernel("for (int64_t i = 0; i < n; i++) out[i] += 2 * x[i];"), wanted=wanted,
        incumbent=kernel("for (int64_t i = n; i-- > 0;) out[i] += 2 * x[i];"), plan=FAST,
        reference="def twice(x, out):\n    return out + 2 * x\n")
    assert verdict.correct and verdict.audit == (), verdict


# Python, by its own rules: versions of weights, tensors that are returned.


def times(**fields: object) -> Target:
    weight = fields.pop("weight", True)
    return kernel_case.target(language="python", op="times", entry="times",
                              reference="reference.py:times", returns=True, args=(
                                  Arg(name="x", dtype="float32", shape=("n", 16)),
                                  Arg(name="w", dtype="float32", shape=(16, 16),
                                      weight=bool(weight))),
                              classes=(ConfigClass(name="odd", shape={"n": 21}),), **fields)


REFERENCE = "def times(x, w):\n    return x @ (w * w)\n"
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
    kernel_case.tree(tmp_path / "incumbent", source, REFERENCE)
    verdict = _same(tmp_path, source, times(weight=weight))
    assert rules(verdict) == ({} if rule is None else {rule: "reject"}), verdict
    assert verdict.correct == (rule is None)


def _same(folder: Path, source: str, of: Target, **settings: object) -> Verdict:
    """Judge a source against itself: it is checked, and not timed."""
    from harness import devices
    from harness.evaluate import Settings, Trees, evaluate

    tree = str(folder / "incumbent")
    return evaluate(of, Trees(candidate=tree, incumbent=tree, reference=tree),
                    devices.find("cpu"),
                    Settings(scratch=str(folder / "scratch"), distributions=("normal",)))


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
    kernel_case.tree(tmp_path / "incumbent", source, REFERENCE)
    assert _same(tmp_path, source, strided).correct == right
    if not right:
        assert _same(tmp_path, source, plain).correct


def test_a_view_must_be_written_in_its_own_elements_only(tmp_path: Path) -> None:
    of = kernel_case.target(language="python", classes=(ConfigClass(name="a", shape={"n": 40}),))
    of = replace(of, args=(of.args[0], replace(of.args[1], strided=True)))
    source = ("import torch\ndef double(x, out):\n    out.copy_(2 * x)\n"
              "    if out.stride(0) > 1: torch.as_strided(out, (79,), (1,))[1::2] = 0\n")
    kernel_case.tree(tmp_path / "incumbent", source)
    verdict = _same(tmp_path, source, of)
    assert "wrote between its elements" in (verdict.rejected_reason or ""), verdict


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_eight_bit_floats_are_checked_like_others(dtype: str, tmp_path: Path) -> None:
    of = kernel_case.target(language="python", dtype=dtype,
                            classes=(ConfigClass(name="a", shape={"n": 300}),))
    source = "def double(x, out):\n    out.copy_(2.0 * x.float())\n"
    kernel_case.tree(tmp_path / "incumbent", source)
    verdict = _same(tmp_path, source, of)
    assert verdict.correct and verdict.max_rel_err == 0.0, verdict
    wrong = "def double(x, out):\n    out.copy_(1.5 * x.float())\n"
    kernel_case.tree(tmp_path / "wrong" / "incumbent", wrong)
    assert not _same(tmp_path / "wrong", wrong, of).correct


