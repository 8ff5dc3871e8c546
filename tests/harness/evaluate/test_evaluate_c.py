"""C kernels get the right verdict: honest, broken, and adversarial ones."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.case import Errors
from harness.compile import kernel
from harness.compile.place import place_on
from harness.devices.inventory import find
from harness.errors import Cancelled
from harness.evaluate.evaluate import Evaluation, evaluate
from harness.formats.json_codec import convert, from_json, to_json
from harness.isolation.rpc import PeerError
from harness.roofline import ceilings
from harness.roofline.ceilings import Ceilings, Level
from harness.roofline.roofline import of_cpu
from harness.runners.oracle_client import OracleError
from harness.runners.runner_pool import RunnerPool
from harness.runners.session import CALL_LIMITS
from harness.settings import Settings, Trees
from harness.tasks.target import Arg
from harness.timing.paired_timing import ClassTiming
from harness.verdict import Row, Verdict
from tests.support.kernels.c_case import (
    FAST,
    QUICK,
    RIGHT,
    SLOW,
    Bench,
    judge,
    settled,
    target,
    tree,
)
from tests.support.kernels.c_case import kernel as c
from tests.support.kernels.evaluate_c_case import ONE_CLASS, SHORT

SLOWEST = SLOW.replace("k < 4", "k < 40")
"""So slow that no other load of the machine hides the difference from FAST."""


@pytest.fixture(autouse=True, scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Share one lock between all workers of a test run, which must not time kernels at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KOPT_LOCK_DIR", str(tmp_path_factory.getbasetemp().parent / "locks"))
        yield


def test_faster_kernel_is_measured_as_faster(tmp_path: Path) -> None:
    stages = list[str]()
    base = tree(tmp_path / "incumbent", SLOWEST)
    verdict = evaluate(
        target(), Trees(candidate=tree(tmp_path / "candidate", FAST), incumbent=base,
                        reference=base), find("cpu"), settled(tmp_path, candidate_id="c1"),
        progress=lambda stage, *_: stages.append(stage))
    assert (verdict.valid, verdict.correct, verdict.latency_kind) == (True, True, "measured-cpu")
    assert [(row.config_class, row.outcome) for row in verdict.rows] == \
        [("even", "faster"), ("odd", "faster")]
    assert verdict.speedup_low and verdict.speedup_low > 1.01
    assert verdict.speedup and verdict.speedup > 1.5 and verdict.speedup_high and verdict.latency_us
    assert verdict.speedup_low <= verdict.speedup <= verdict.speedup_high
    assert verdict.candidate_id == "c1" and verdict.audit == ()
    assert [stage for stage, _ in itertools.groupby(stages) if stage != "waiting"][:5] == [
        "building", "loading", "checking", "starting", "timing"]
    assert all(0 < (row.pct_of_roofline or 0) <= 100 for row in verdict.rows)
    assert from_json(to_json(verdict), Verdict) == verdict


@pytest.mark.parametrize("source", [SLOW, "/* the same, explained */\n\n" + SLOW])
def test_identical_code_is_a_tie_and_not_timed(source: str, tmp_path: Path) -> None:
    verdict = judge(tmp_path, source)
    assert (verdict.correct, verdict.latency_us, verdict.speedup) == (True, None, None)
    assert [row.outcome for row in verdict.rows] == ["tie", "tie"]
    assert verdict.notes == ("identical to the incumbent: a tie, not timed",)


@pytest.mark.slow  # a candidate that loses is in test_paired_timing
def test_slower_kernel_is_measured_as_slower(tmp_path: Path) -> None:
    verdict = judge(tmp_path, SLOWEST, incumbent=FAST)
    assert [row.outcome for row in verdict.rows] == ["slower", "slower"]


WRONG = {
    "one class": (c("for (int64_t i = 0; i < n; i++) out[i] = (n % 2 ? 2.1f : 2.0f) * x[i];"),
                  {"even": "",
                   "odd": r"out: error 0\.0\d+ of the output's scale, allowed 7\.7e-06"}),
    "the last value is not written": (
        c("for (int64_t i = 0; i < n - 1; i++) out[i] = 2 * x[i];"),
        {"even": "1 value not finite; .* an element never written",
         "odd": "not run: an earlier class failed"}),
    "nothing is written": (c(""), {"even": "8192 values not finite; ",
                                   "odd": "not run: an earlier class failed"}),
    "infinite": (c(RIGHT + "out[3] = 1.0f / 0.0f;"),
                 {"even": "1 value not finite; possible causes: an overflow", "odd": "not run"}),
    "overwrites its input": (
        c(RIGHT + "((float *)x)[n / 2] += 1;"),
        {"even": "the inputs x were overwritten", "odd": "not run: an earlier class failed"}),
    "only near zero": (c("for (int64_t i = 0; i < n; i++) out[i] = x[i] > 3 ? 6 : 2 * x[i];"),
                       {"even": "out: error .* of the output's scale", "odd": "not run"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_result_is_reported_by_class_and_not_timed(name: str, tmp_path: Path) -> None:
    source, complaints = WRONG[name]
    verdict = judge(tmp_path, source)
    assert (verdict.valid, verdict.correct, verdict.latency_us) == (True, False, None)
    for row in verdict.rows:
        assert re.match(complaints[row.config_class], row.note), row.note
    assert [row.outcome for row in verdict.rows].count("broken") == 1


def test_stateful_kernel_that_is_right_once_is_caught(bench: Bench) -> None:
    source = c("if (calls++ % 7 == 0) " + RIGHT, "static int calls;")
    verdict = bench.judge(source)
    assert not verdict.correct


@pytest.mark.parametrize("source", [
    # one process checks everything in some 21 calls: right while it is checked, wrong while timed
    c("if (calls++ < 30) " + RIGHT, "static int calls;"),
    pytest.param(c("if (calls++ > 40) out[n / 2] = 0; else " + RIGHT, "static int calls;"),
                 marks=pytest.mark.slow, id="late"),
    # does nothing at addresses that it has seen, though their contents are new
    pytest.param(c("static int seen[1 << 16]; int at = (uintptr_t)x >> 12 & 65535; "
                   "if (calls++ > 20 && seen[at]) return; seen[at] = 1; " + RIGHT,
                   "static int calls;"), marks=pytest.mark.slow, id="where it has been"),
])
def test_wrong_results_during_timing_are_caught_afterwards(source: str, bench: Bench) -> None:
    verdict = bench.judge(source)
    assert (verdict.valid, verdict.latency_us) == (False, None)
    assert verdict.rejected_reason in ("class even: a timed call gave a wrong answer",
                                       "class odd: a timed call gave a wrong answer")
    assert [(f.rule, f.severity) for f in verdict.audit] == [("timed-answer", "reject")]


def floor(tmp_path: Path, candidate_us: float, gb_per_s: float) -> Verdict:
    """Return the verdict on given times under a given bandwidth."""
    evaluation = Evaluation(
        ONE_CLASS, Trees(candidate="", incumbent="", reference=""), find("cpu"),
        Settings(scratch=str(tmp_path), plan=QUICK), None, None)
    limits = Ceilings(gflops=1e6, levels=(Level(1e9, gb_per_s),),
                      copy_gb_per_s=gb_per_s)
    timing = ClassTiming(config_class="even", candidate_us=candidate_us, incumbent_us=20.0,
                         log_ratios=(1.0, 1.01, 0.99, 1.0))
    errors = {"even": Errors(absolute=0.0, relative=0.0, bad=0)}
    return evaluation._verdict(errors, {"even": timing}, limits, of_cpu(limits))


def test_latency_below_the_physical_floor_is_withheld(tmp_path: Path) -> None:
    honest = floor(tmp_path, 7.0, 10.0)  # 64 KiB at 10 GB/s take 6.6 us
    assert honest.latency_us == pytest.approx(7.0)
    assert honest.pct_of_roofline == pytest.approx(100 * 6.5536 / 7.0)
    impossible = floor(tmp_path, 6.0, 10.0)
    assert (impossible.latency_us, impossible.speedup) == (None, None)
    assert "below the physical floor" in impossible.rows[0].note
    assert [(f.rule, f.severity) for f in impossible.audit] == [("physical-floor", "reject")]


def test_impossibly_fast_kernel_is_rejected(tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    slow_machine = Ceilings(gflops=1e6, levels=(Level(1e9, 0.01),),
                            copy_gb_per_s=0.01)
    monkeypatch.setattr(ceilings, "of_cpu", lambda name, scratch: slow_machine)
    verdict = judge(tmp_path, FAST, task=ONE_CLASS, plan=SHORT)
    assert (verdict.latency_us, verdict.speedup) == (None, None)
    assert [f.rule for f in verdict.audit] == ["physical-floor"]


BAD_REFERENCES = {
    "raises": ("def twice(x):\n    raise KeyError('no')\n", "the reference failed: KeyError"),
    "wrong shape": ("def twice(x):\n    return x[1:]\n", r"the reference gave shape \[8191\]"),
    "nan": ("def twice(x):\n    return x / 0\n", "are not finite"),
    "exits": ("import os\ndef twice(x):\n    os._exit(3)\n", "the reference exited with 3"),
    "no function": ("", "the reference failed: AttributeError"),
    "syntax": ("def twice(:\n", "the reference failed: SyntaxError"),
    "device": ("def twice(x):\n    raise RuntimeError('CUDA error: out of memory\\nCompile with "
               "`TORCH_USE_CUDA_DSA`')\n", "RuntimeError: CUDA error: out of memory"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD_REFERENCES)
def test_broken_reference_is_the_tasks_fault(name: str, tmp_path: Path) -> None:
    reference, message = BAD_REFERENCES[name]
    with pytest.raises(OracleError, match=message) as caught:
        judge(tmp_path, FAST, reference=reference, task=ONE_CLASS)
    assert caught.value.exit_code == 2
    assert caught.value.may_pass == (name in ("exits", "device"))
    assert caught.value.where == "reference.py:twice"
    assert "\n" not in str(caught.value)


WEAK = {"zeros": "def twice(x):\n    return 0 * x\n",
        "constant": "def twice(x):\n    return 0 * x + 3\n",
        "copied input": "def twice(x):\n    return 1 * x\n"}


@pytest.mark.parametrize("name", [
    "zeros", pytest.param("constant", marks=pytest.mark.slow),
    pytest.param("copied input", marks=pytest.mark.slow)])
def test_check_that_a_trivial_answer_passes_is_flagged(name: str, tmp_path: Path) -> None:
    value = {"zeros": "0", "constant": "3", "copied input": "x[i]"}[name]
    verdict = judge(tmp_path, c(f"for (int64_t i = 0; i < n; i++) out[i] = {value};"),
                    incumbent=c(f"for (int64_t i = n; i-- > 0;) out[i] = {value};"),
                    reference=WEAK[name], task=ONE_CLASS, plan=SHORT)
    assert verdict.correct, verdict
    flags = [f for f in verdict.audit if f.rule == "weak-check"]
    assert len(flags) == 1 and flags[0].severity == "flag" and name in flags[0].detail


def test_integers_and_inout_arguments_are_checked(tmp_path: Path) -> None:
    counted = target(op="add", entry="twice", args=(
        Arg(name="x", dtype="int32", shape=("n",), low=-100, high=100),
        Arg(name="out", dtype="int32", shape=("n",), role="inout", low=-5, high=5),
        Arg(name="n", dtype="int64", value="n")), classes=ONE_CLASS.classes, flops="n")
    source = c("for (int64_t i = 0; i < n; i++) out[i] += 2 * x[i];").replace("float", "int32_t")
    verdict = judge(tmp_path, source, task=counted, incumbent=source.replace("2 * x[i]",
                                                                               "x[i] + x[i]"),
                    reference="def twice(x, out):\n    return out + 2 * x\n", plan=SHORT)
    assert verdict.valid and verdict.correct, verdict


GOOD = {"valid": True, "correct": True, "latency_us": 5.0, "latency_kind": "measured-cpu"}


DISHONEST = [
    ({"valid": False}, "must say why"),
    ({"valid": False, "rejected_reason": "x", "correct": True}, "no claim of correctness"),
    ({"valid": False, "rejected_reason": "x", "latency_us": 1.0,
      "latency_kind": "measured-cpu"}, "only a correct candidate has a latency"),
    ({"valid": True, "latency_us": 1.0, "latency_kind": "measured-cpu"},
     "only a correct candidate has a latency"),
    ({"valid": True, "correct": True, "latency_us": 1.0}, "come together"),
    ({"valid": True, "correct": True, "latency_kind": "measured-cpu"}, "come together"),
    (GOOD | {"latency_kind": "predicted", "speedup": 2.0}, "not a measured speedup"),
    (GOOD | {"floor_us": 6.0}, "physical floor"),
    ({"valid": False, "rejected_reason": "x", "speedup": 2.0}, "a speedup"),
    ({"valid": True, "correct": False, "speedup": 2.0}, "speedup"),
    (GOOD | {"pct_of_roofline": 101.0}, "roofline"),
    (GOOD | {"latency_us": float("nan")}, "positive"),
    (GOOD | {"latency_us": 0.0}, "positive"),
    (GOOD | {"rows": (Row(config_class="a", correct=False),)}, "every class"),
]


@pytest.mark.parametrize(("fields", "why"), DISHONEST)
def test_dishonest_verdict_cannot_be_built(fields: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Verdict(**fields)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        convert(dict(fields), Verdict)


def test_honest_verdict_survives_json() -> None:
    verdict = Verdict(**GOOD, floor_us=4.0, speedup=1.2, pct_of_roofline=80.0,  # type: ignore
                      rows=(Row(config_class="a", correct=True, outcome="faster"),))
    assert from_json(to_json(verdict), Verdict) == verdict


def test_library_swapped_after_the_build_is_not_run(tmp_path: Path) -> None:
    place = place_on(find("cpu"), "c", scratch=str(tmp_path), python=None, env={})
    made = kernel.make(ONE_CLASS, Path(tree(tmp_path / "t", FAST)), "candidate", place)
    other = kernel.make(ONE_CLASS, Path(tree(tmp_path / "u", SLOW)), "incumbent", place)
    Path(made.artifact).write_bytes(Path(other.artifact).read_bytes())
    with pytest.raises(PeerError, match="not the one that was built"):
        RunnerPool(CALL_LIMITS).start(made)


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.5, 1.2])
def test_cancelled_evaluation_raises_instead_of_judging(after_s: float, tmp_path: Path) -> None:
    cancel = threading.Event()
    threading.Timer(after_s, cancel.set).start()
    base = tree(tmp_path / "incumbent", SLOW)
    with pytest.raises(Cancelled):
        evaluate(target(), Trees(candidate=tree(tmp_path / "candidate", SLOW + "int x;"),
                                 incumbent=base, reference=base), find("cpu"),
                 Settings(scratch=str(tmp_path / "scratch"), always_time=True,
                          plan=replace(QUICK, looks=(40,))), cancel=cancel)
