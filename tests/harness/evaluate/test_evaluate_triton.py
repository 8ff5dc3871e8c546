"""Without a GPU, Python and Triton kernels are checked, and every failure is a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.discovery.new.draft_kernel import DraftedTarget
from engine.discovery.watched.first_check import FirstCheck
from engine.judge.judge import Policy, rule
from engine.rounds.retries import is_repairable
from harness.compile.kernel import make
from harness.compile.place import place_on
from harness.devices import inventory
from harness.errors import EnvironmentFault, KoptError
from harness.evaluate import device_limits
from harness.isolation.rpc import PeerError
from harness.runners.runner_pool import RunnerPool
from harness.runners.session import CALL_LIMITS
from harness.tasks.target import Arg, ConfigClass, Target
from harness.verdict import Evidence
from kopt_tui.snapshot import verdict_words
from tests.support.kernels.kernel_case import DOUBLE, HEAD, QUICK, Bench, judge, target

TUNED = DOUBLE.replace("@triton.jit", """@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit""").replace("BLOCK: tl.constexpr = 64", "BLOCK: tl.constexpr")

ASKING = DOUBLE.replace("def double(x, out):\n", """def double(x, out):
    import torch
    assert triton.runtime.driver.active.get_current_target().backend != "hip"
    assert torch.cuda.get_device_properties(x.device).multi_processor_count
    assert x.is_cuda and torch.empty(1, device="cuda").is_cuda
    with torch.cuda.device(x.device.index):
        assert torch.cuda.get_device_capability()[0] > 6
""")


SCALED = DOUBLE.replace("2 *", "s.to(tl.float32) *").replace(
    "x, out, n,", "x, out, n, s,").replace("(x, out, n)", "(x, out, n, 2.0)")


LIBDEVICE = DOUBLE.replace("@triton.jit", """from triton.language.extra import libdevice
import importlib.util
spec = importlib.util.find_spec("triton.language.extra.libdevice")
copy = importlib.util.module_from_spec(spec)
spec.loader.exec_module(copy)
tanh = copy.tanh
from triton.language.extra.cuda.libdevice import div_rn
@triton.jit""").replace("    tl.store", """    t = tanh(tl.load(x + at, mask=at < n))
    even = libdevice.pow(t, 2) + libdevice.rint(t) * libdevice.fast_expf(t) * 0.0
    odd = libdevice.fma(t, t, div_rn(t, 2.0) * 0.0)
    one = tl.where(libdevice.isnan(t) | (odd < even - 0.001), 0.0, 1.0)
    tl.store""").replace("2 *", "2 * one *")


@pytest.mark.parametrize("source", [DOUBLE, TUNED, ASKING, SCALED, LIBDEVICE],
                         ids=["plain", "autotuned", "asking which card this is", "float scalar",
                              "libdevice"])
def test_interpreted_kernel_is_correct_and_has_no_latency(tmp_path: Path, source: str) -> None:
    verdict = judge(tmp_path, source)
    assert verdict.valid and verdict.correct, verdict
    assert verdict.latency_us is None and verdict.speedup is None
    assert verdict.rows[0].outcome == "unmeasured"
    assert "interpreter" in verdict.notes[0]


RETURNING = DOUBLE.replace("def double(x, out):\n", """def double(x):
    out = torch.empty(x.shape, dtype=x.dtype, device="cuda")
""") + "    return out\n"


def test_kernel_that_returns_memory_of_cuda_is_judged_without_a_gpu(tmp_path: Path) -> None:
    of = target(args=(Arg(name="x", dtype="float32", shape=("n",)),), returns=True,
                return_dtypes=("float32",))
    verdict = judge(tmp_path, RETURNING, of=of)
    assert verdict.correct, verdict


def test_note_names_classes_checked_on_smaller_shapes() -> None:
    classes = (ConfigClass(name="large", shape={"n": 1 << 20}, interpret_shape={"n": 250}),
               ConfigClass(name="small", shape={"n": 250}))
    note = device_limits.interpreted_note(replace(target(), classes=classes))
    assert "interpreter on smaller shapes (large), which shows no races" in note


def test_bfloat16_buffers_are_widened(tmp_path: Path) -> None:
    verdict = judge(tmp_path, DOUBLE, of=target(dtype="bfloat16"))
    assert verdict.correct, verdict
    assert verdict.max_rel_err == 0.0  # twice a bfloat16 number is one


NO_MASK = DOUBLE.replace(", mask=at < n)\n\n", ")\n\n").replace(
    "def double(x, out):", "def double(x, given):").replace(
    "    n = x.numel()", "    n, out = x.numel(), torch.empty_like(x)")
"""Stores past the end of a tensor that it allocated itself, where kopt has no guard zone."""
LOAD = "2 * tl.load(x + at, mask=at < n)"
NEEDS_GPU = {
    "bfloat16": (DOUBLE.replace(LOAD, f"({LOAD}).to(tl.bfloat16)"), "bfloat16"),
    "inline PTX": (DOUBLE.replace(LOAD, "tl.inline_asm_elementwise('add.f32 $0, $1, $1;', '=r,r', "
                                  "[tl.load(x + at, mask=at < n)], dtype=tl.float32, is_pure=True,"
                                  " pack=1)"), "inline_asm not supported"),
    "a rounding of libdevice": (DOUBLE.replace("    tl.store", "    t = tl.extra.cuda.libdevice."
                                "add_rz(0.1, 0.2)\n    tl.store"), "fadd_rz of libdevice"),
    "an extra library": (DOUBLE.replace("    tl.store", "    t = tl.extra.cuda.globaltimer()\n"
                                        "    tl.store"), "extra libraries"),
}


@pytest.mark.parametrize("name", NEEDS_GPU)
def test_kernel_that_the_interpreter_cannot_run_is_not_judged(name: str, tmp_path: Path) -> None:
    source, reason = NEEDS_GPU[name]
    verdict = judge(tmp_path, source)
    assert verdict.valid and not verdict.correct and verdict.rejected_reason is None
    assert reason in verdict.not_judged and "needs a GPU" in verdict.not_judged
    assert verdict.rows[0].outcome == "unmeasured"
    assert verdict.rows[0].note == f"not judged here: {verdict.not_judged}"
    ruling = rule(verdict, Policy())
    assert ruling.kind == "tie" and ruling.reason.startswith("not judged here: ")
    assert not is_repairable(verdict)
    assert verdict_words.describe(verdict).summary_line.startswith("· not judged here: ")


@pytest.mark.parametrize("error", ["raise NotImplementedError('later')", "(1.0).to('cpu')"])
def test_errors_of_host_code_reject_the_candidate(error: str, tmp_path: Path) -> None:
    verdict = judge(tmp_path, DOUBLE.replace("    n = x.numel()", f"    {error}"))
    assert not verdict.valid and not verdict.not_judged


DESCRIPTORS = HEAD + """
@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr = 64):
    a = tl.make_tensor_descriptor(x, shape=[n], strides=[1], block_shape=[BLOCK])
    b = tl.make_tensor_descriptor(out, shape=[n], strides=[1], block_shape=[BLOCK])
    at = tl.program_id(0) * BLOCK
    b.store([at], 2 * a.load([at]))

def double(x, out):
    n = x.numel()
    double_kernel[(triton.cdiv(n, 64),)](x, out, n)
"""


def test_tensor_descriptors_are_judged(tmp_path: Path) -> None:
    assert judge(tmp_path, DESCRIPTORS).correct


@pytest.mark.parametrize("baseline", [
    DOUBLE.replace("    tl.store", "    tl.extra.cuda.globaltimer()\n    tl.store"),
    DOUBLE.replace("2 *", "3 *"), DOUBLE.replace("out + at", "out + at + (1 << 40)")],
    ids=["cannot be interpreted", "is wrong", "crashes"])
@pytest.mark.parametrize("candidate", [
    pytest.param(DOUBLE.replace("2 *", "4 *"), id="wrong"),
    pytest.param(DOUBLE.replace("    n = x.numel()", "    n = x.size"), id="failing",
                 marks=pytest.mark.slow)])
def test_baseline_that_fails_in_the_interpreter_raises_environment_fault(
        candidate: str, baseline: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="the baseline fails "):
        judge(tmp_path, candidate, baseline)


def test_wrong_kernel_is_incorrect(tmp_path: Path) -> None:
    verdict = judge(tmp_path, DOUBLE.replace("2 *", "3 *"))
    assert verdict.valid and not verdict.correct and verdict.latency_us is None
    assert verdict.rows[0].outcome == "broken"
    assert "of the output's scale" in verdict.rows[0].note


FAILURES = {
    "syntax": ("def double(x, out:\n", "does not compile: kernel.py:1"),
    "far out of bounds": (
        DOUBLE.replace("out + at", "out + at + (1 << 40)"),
        "kernel.py:8, double_kernel stores 64 values outside its tensors, the first 43980"),
    "no mask": (NO_MASK, "kernel.py:8, double_kernel stores 53 values outside its tensors, the "
                         "first 0 bytes past the end of out: give the store a mask"),
    "a crash in Python": (HEAD + "import ctypes\ndef double(x, out):\n    ctypes.string_at(0)\n",
                          "crashed (SIGSEGV) in kernel.py:6, double"),
    "prints for ever": ("while True: print('x' * 100000)\n", "printed more than"),
    "no entry": (DOUBLE.replace("def double(", "def halve("), "has no attribute 'double'"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failure_is_a_verdict(tmp_path: Path, name: str) -> None:
    source, reason = FAILURES[name]
    verdict = judge(tmp_path, source)
    assert not verdict.valid and not verdict.correct
    assert reason in (verdict.rejected_reason or ""), verdict.rejected_reason


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench"), target())
    yield made
    made.oracle.close()


@pytest.mark.parametrize("source", [
    DOUBLE.replace("at < n)\n\n", "at < n - 1)\n\n"),
    HEAD + "def double(x, out):\n    return 2 * x\n"], ids=["one too few", "returned"])
def test_unwritten_output_is_detected(bench: Bench, source: str) -> None:
    assert bench.run(source).bad > 0


def test_overwritten_input_is_detected(bench: Bench) -> None:
    errors = bench.run(DOUBLE.replace("    n = x.numel()", "    n = x.numel(); x.add_(1)"))
    assert errors.changed == ("x",) and not errors.within(10.0)


RAISING = {
    "nested": ("x = " + "(" * 5000, "kernel.py"),
    "import fails": ("import nothing_of_the_kind\n" + DOUBLE, "No module named"),
    "raises": ("def double(x, out):\n    raise ValueError('\x1b[31mno\\nway\x1b[0m')\n",
               "ValueError: no … way"),
    "leaves": ("import os\nos._exit(0)\n", "exited with 0"),
    "aborts": ("import os\ndef double(x, out):\n    os.abort()\n", "SIGABRT"),
    "just out of bounds": (DOUBLE.replace("mask=at < n)\n\n", "mask=at < n + 5)\n\n"),
                           "0 bytes past the end of out: give the store a mask"),
    "imports what it replaces": ("from kernel import double\n", "it cannot import from it"),
    "closes its channel": ("import os\nos.closerange(3, 999)\n", "exited with"),
}


@pytest.mark.parametrize("name", RAISING)
def test_broken_kernel_states_why(bench: Bench, name: str) -> None:
    source, reason = RAISING[name]
    with pytest.raises(KoptError) as raised:
        bench.run(source)
    assert reason in raised.value.what
    assert "\x1b" not in raised.value.what


def test_hang_ends_at_the_limit(tmp_path: Path) -> None:
    source = HEAD + "def double(x, out):\n    while True: pass\n"
    verdict = judge(tmp_path, source, wall_s=4.0)
    assert "ran past its limit of 4 s" in (verdict.rejected_reason or "")
    assert Evidence(kind="fault", detail="timeout") in verdict.evidence and is_repairable(verdict)
    drafted = DraftedTarget(target=target(), files={})
    assert FirstCheck(drafted=drafted, verdict=verdict).is_final  # no other reference is quicker


def test_interpreter_without_torch_is_not_the_candidates_fault(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    place = place_on(inventory.find("cpu"), "triton", scratch=str(tmp_path), env={},
                     python=str(python))
    (tmp_path / "kernel.py").write_text(DOUBLE)
    kernel = make(target(), tmp_path, "candidate", place)
    with pytest.raises(EnvironmentFault, match="cannot run triton kernels"), \
            RunnerPool(CALL_LIMITS) as runners:
        runners.start(kernel)


def returning(**fields: object) -> Target:
    return target(language="python", returns=True, args=(
        Arg(name="x", dtype="float32", shape=("n", 64)),), classes=(
        ConfigClass(name="tall", shape={"n": 256}), ConfigClass(name="odd", shape={"n": 77})),
        **fields)


SLOW = "def double(x):\n    for _ in range(20): y = x + x\n    return y\n"


def test_python_kernel_is_measured_on_the_cpu(tmp_path: Path) -> None:
    verdict = judge(tmp_path, "def double(x):\n    return x + x\n", SLOW, of=returning(),
                    plan=replace(QUICK, looks=(3,), alpha=0.05))
    assert verdict.valid and verdict.correct, verdict
    assert verdict.latency_kind == "measured-cpu"
    assert verdict.speedup is not None and verdict.speedup > 3
    assert all(row.latency_us and row.incumbent_us and row.pairs >= 3 for row in verdict.rows)


RETURNS = {
    "a list of numbers": ("return [1.0]", "returned float"),
    "a tuple that computes when it is read": (
        "return type('T', (tuple,), {'__iter__': lambda self: iter((x + x,))})()", "returned T"),
    "nothing": ("pass", "returned NoneType"),
    "a subclass": ("import torch; return torch.nn.Parameter(x + x)", "returned Parameter"),
    "another shape": ("return (x + x).flatten()", ", the reference ["),
    "two": ("return x + x, x", "2 outputs, expected 1"),
    "another dtype": ("return (x + x).double()", "returned float64"),
    "sparse": ("return (x + x).to_sparse()", "layout"),
}


@pytest.fixture(scope="module")
def returns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("returns"), returning(return_dtypes=("float32",)))
    yield made
    made.oracle.close()


@pytest.mark.parametrize("name", RETURNS)
def test_returned_values_are_checked(returns: Bench, name: str) -> None:
    body, reason = RETURNS[name]
    with pytest.raises(PeerError) as raised:
        returns.run(f"def double(x):\n    {body}\n")
    assert reason in raised.value.what


def test_change_in_another_file_makes_another_candidate(tmp_path: Path) -> None:
    from harness.compile.kernel import make
    from harness.compile.place import place_on
    from harness.devices import inventory

    place = place_on(inventory.find("cpu"), "python", scratch=str(tmp_path), env={}, python=None)
    (tmp_path / "kernel.py").write_text("from helper import double\n")
    (tmp_path / "helper.py").write_text("def double(x): return 2 * x\n")
    before = make(returning(), tmp_path, "candidate", place)
    (tmp_path / "helper.py").write_text("def double(x): return x + x\n")
    after = make(returning(), tmp_path, "candidate", place)
    assert before.sha256 == after.sha256 and before.identity != after.identity
