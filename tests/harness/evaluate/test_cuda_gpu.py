"""CUDA kernels on a real GPU get the right verdict; skipped without one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness.devices import inventory
from harness.devices.device import Device
from harness.evaluate.evaluate import evaluate
from harness.loop.loop import loop
from harness.search.trials.trials import SearchJob
from harness.settings import Settings, Trees
from harness.tasks.target import Launch, Target
from harness.timing.plan import Plan
from harness.verdict import COMPILED, Verdict
from tests.support.kernels import device_case
from tests.support.kernels.device_case import GLOBAL, LAUNCHER, needs_nvcc

pytestmark = pytest.mark.gpu
QUICK = Plan(looks=(4, 6), alpha=0.05)
SLOW = "    if (i < n) out[i] = factor * x[i];\n", """    if (i < n) {
        float v = x[i];
        for (int k = 0; k < 300; k++) v = __fdiv_rn(__fmul_rn(v, 3.0f), 3.0f);
        out[i] = __fadd_rn(__fmul_rn(factor, x[i]), __fmul_rn(0.0f, v));
    }
"""
EXTENSION = """
import torch
from torch.utils.cpp_extension import load_inline
CALLS = r'''
#include <pybind11/pybind11.h>
void launch(long x, long out, float factor, int n, long stream);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {{ module.def("launch", &launch); }}
'''
KERNEL = r'''
{kernel}
void launch(long x, long out, float factor, int n, long stream) {{
    twice<<<(n + TILE - 1) / TILE, TILE, 0, (cudaStream_t)stream>>>(
        (const float *)x, (float *)out, factor, n);
}}
'''
built = load_inline("kopt_extension", CALLS, KERNEL, no_implicit_headers=True)

def twice(x, out, factor, n):
    built.launch(x.data_ptr(), out.data_ptr(), factor, n, torch.cuda.current_stream().cuda_stream)
"""
LIBRARY = device_case.target(launch=None)


def card() -> Device:
    return next(d for d in inventory.inventory() if d.kind == "nvidia" and not d.unusable)


def judge(folder: Path, candidate: str, incumbent: str, target: Target | None = None) -> Verdict:
    base = device_case.tree(folder / "incumbent", incumbent)
    trees = Trees(candidate=str(device_case.tree(folder / "candidate", candidate)),
                  incumbent=str(base), reference=str(base))
    return evaluate(target or device_case.target(), trees, card(),
                    Settings(scratch=str(folder / "scratch"), plan=QUICK))


def launches(verdict: Verdict) -> list[str]:
    """Return how the calls of each class were launched."""
    return [entry.detail for entry in verdict.evidence if entry.kind == "launch"]


@pytest.mark.parametrize("source", [GLOBAL, pytest.param(LAUNCHER, marks=needs_nvcc)],
                         ids=["nvrtc", "nvcc"])
def test_faster_kernel_is_measured_as_faster_in_graphs(tmp_path: Path, source: str) -> None:
    slow = source.replace(*SLOW)
    assert slow != source
    verdict = judge(tmp_path, source, slow, LIBRARY if source is LAUNCHER else None)
    assert verdict.valid and verdict.correct, verdict
    assert {row.config_class: row.outcome for row in verdict.rows}["big"] == "faster", verdict
    assert launches(verdict)[0].startswith("odd: graphs of"), verdict.evidence
    compiled = [entry.detail for entry in verdict.evidence if entry.kind == COMPILED]
    assert compiled and "registers, 0 bytes spilled" in compiled[0], compiled
    assert not [each for each in verdict.audit if each.severity != "note"], verdict.audit
    print(verdict.speedup, verdict.wall_s, compiled, verdict.rows)


@needs_nvcc
def test_launcher_without_a_stream_is_judged_too(tmp_path: Path) -> None:
    plain = LAUNCHER.replace(", cudaStream_t stream", "").replace("TILE, 0, stream", "TILE")
    verdict = judge(tmp_path, plain, plain.replace(*SLOW), LIBRARY)
    assert verdict.correct and verdict.rows[1].outcome == "faster", verdict
    assert launches(verdict)[0].startswith("odd: one by one"), verdict.evidence


@pytest.mark.parametrize(("source", "why"), [
    (GLOBAL.replace("factor * x[i]", "x[i] * 3.0f"), ""),
    (GLOBAL.replace("out[i] = factor", "out[i + (1LL << 40)] = factor"), "illegal memory"),
    (GLOBAL.replace("factor * x[i]", "factor * y[i]"), 'identifier "y" is undefined')],
    ids=["wrong", "out of bounds", "does not compile"])
def test_wrong_crashing_or_uncompilable_kernel_is_not_correct(
        tmp_path: Path, source: str, why: str) -> None:
    verdict = judge(tmp_path, source, GLOBAL)
    assert not verdict.correct and why in (verdict.rejected_reason or ""), verdict


@needs_nvcc
def test_failed_launch_of_a_launcher_is_the_reason(tmp_path: Path) -> None:
    source = LAUNCHER.replace("TILE, TILE, 0", "TILE, 5000, 0")
    verdict = judge(tmp_path, source, LAUNCHER, LIBRARY)
    assert not verdict.correct and "invalid" in (verdict.rejected_reason or ""), verdict


@pytest.mark.parametrize("source", [GLOBAL, pytest.param(LAUNCHER, marks=needs_nvcc)],
                         ids=["nvrtc", "nvcc"])
def test_baseline_can_be_the_reference(tmp_path: Path, source: str) -> None:
    target = replace(LIBRARY if source is LAUNCHER else device_case.target(), reference="baseline")
    assert judge(tmp_path / "right", source + "//\n", source, target).correct
    wrong = judge(tmp_path / "wrong", source.replace("factor * x", "2.1f * x"), source, target)
    assert wrong.valid and not wrong.correct, wrong


def test_c_function_can_be_the_reference(tmp_path: Path) -> None:
    """It runs on the CPU with every float as a double."""
    reference = """extern "C" void twice(double *x, double *out, double factor, int n) {
    for (int i = 0; i < n; i++) out[i] = factor * x[i];
}
"""
    target = replace(device_case.target(), reference="reference.cpp:twice")
    base = device_case.tree(tmp_path / "base", GLOBAL)
    (base / "reference.cpp").write_text(reference)
    for source in (GLOBAL + "//\n", GLOBAL.replace("factor * x", "2.1f * x")):
        other = tmp_path / str(len(source))
        shutil.copytree(base, other)
        (other / "kernel.cu").write_text(source)
        verdict = evaluate(
            target, Trees(candidate=str(other), incumbent=str(base), reference=str(base)), card(),
            Settings(scratch=str(tmp_path / "scratch"), plan=QUICK))
        assert (verdict.valid, verdict.correct) == (True, "2.1f" not in source), verdict
        assert "reference-baseline" not in {finding.rule for finding in verdict.audit}


def test_dynamic_shared_memory_above_48_kib_is_granted(tmp_path: Path) -> None:
    source = GLOBAL.replace("int i = ", "extern __shared__ float tile[];\n"
                            "    tile[threadIdx.x + 20000] = 1.0f; int i = ")
    target = device_case.target(launch=Launch(
        grid=("(n + TILE - 1) // TILE",), block=("TILE",), shared_bytes="4 * (20000 + TILE)"))
    verdict = judge(tmp_path, source, source + "//\n", target)
    assert verdict.correct, verdict


@needs_nvcc
@pytest.mark.skipif(shutil.which("ninja") is None, reason="ninja is not installed")
def test_torch_extension_is_built_in_private_before_its_calls_are_timed(tmp_path: Path) -> None:
    target = device_case.target(language="python", launch=None, source="kernel.py",
                                classes=device_case.target().classes[1:])
    fast = EXTENSION.format(kernel=GLOBAL.replace('extern "C"', "static"))
    slow = EXTENSION.format(kernel=GLOBAL.replace('extern "C"', "static").replace(*SLOW))
    trees = [device_case.tree(tmp_path / name, "") for name in ("candidate", "incumbent")]
    for tree, source in zip(trees, (fast, slow), strict=True):
        (tree / "kernel.py").write_text(source)
    candidate, incumbent = map(str, trees)
    verdict = evaluate(target, Trees(candidate=candidate, incumbent=incumbent,
                                     reference=incumbent), card(),
                       Settings(scratch=str(tmp_path / "scratch"), plan=QUICK))
    assert verdict.correct and verdict.rows[0].outcome == "faster", verdict
    assert (verdict.latency_us or 0.0) < 200.0, "no build within a timed call"
    assert not list(Path.home().glob(".cache/torch_extensions/*/kopt_extension"))
    print(verdict.wall_s, verdict.latency_us)


def test_knobs_are_searched_with_their_launch(tmp_path: Path) -> None:
    start = GLOBAL.replace("[128, 256, 512]", "[32, 1024]").replace("TILE 256", "TILE 32")
    base = device_case.tree(tmp_path / "base", start)
    target = replace(device_case.target(), classes=device_case.target().classes[1:])
    result = loop(target, SearchJob(tree=str(base), reference=str(base), budget=4), card(),
                  Settings(scratch=str(tmp_path / "scratch"), plan=QUICK))
    assert {trial.config["TILE"] for trial in result.trials} == {32, 1024}, result
    assert all(trial.correctness == "PASS" for trial in result.trials), result.trials
    print([(trial.config, trial.latency_us) for trial in result.trials])
