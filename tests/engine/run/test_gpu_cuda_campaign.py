"""Whole campaigns on a real card: a CUDA source that declares no knobs, and a PyTorch module.

Needs msgspec, gitpython and tree-sitter besides what `make test-gpu` needs.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("msgspec")

from engine.campaign import setup as campaigns_of
from engine.campaign.setup import Setup
from engine.journal.decoded.recorded import verdict_of
from engine.verify import reference_lines
from harness.verdict import COMPILED
from tests.support import repos
from tests.support.engines import campaigns
from tests.support.kernels import device_case, module_case
from tests.support.programs.command_line import kopt

pytestmark = pytest.mark.gpu
SLOW = device_case.LAUNCHER.replace("#define TILE 256  // kopt: knob TILE in [128, 256, 512]",
                                    "#define TILE 8")
SCALE = """
extern "C" __global__ void scale(const float *x, float *out, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) out[at] = 2.0f * x[at];
}
"""
NEW = ("--yes", "--rounds", "1", "--approval", "auto")


def finished(setup: Setup, limit_s: float) -> None:
    assert campaigns.run(setup, limit_s=limit_s).error is None, campaigns.campaign(setup)
    with campaigns.reading(setup) as reader:
        for row in reversed(reader.verdicts(setup.id)):
            verdict = verdict_of(row)
            print(row.purpose, verdict.speedup, f"{verdict.wall_s:.1f} s", verdict.latency_us, [
                fact.detail for fact in verdict.evidence
                if fact.kind == COMPILED], verdict.rejected_reason)
    assert campaigns.candidates(setup, "kept"), campaigns.slots(setup)


def run_and_merge(workspace: Path, project: Path) -> None:
    repos.git(project, "add", "-A")
    repos.git(project, "commit", "-q", "-m", "task")
    setup = campaigns_of.create(workspace, project / "manifest.yaml")
    finished(setup, 100.0)
    merged = kopt("merge", setup.id, workspace=setup.workspace, cwd=project)
    assert merged.returncode == 0, merged.stderr


@device_case.needs_nvcc
def test_tile_of_a_cuda_source_is_proposed_searched_kept_and_merged(tmp_path: Path) -> None:
    project = repos.project(tmp_path / "p", {
        "kernel.cu": SLOW, "reference.py": device_case.REFERENCE})
    done = kopt("new", "kernel.cu", "--entry", "twice", "--shape", "x=n", "--shape", "out=n",
                "--scalar", "factor=2", "--class", "big: n=16777216", "--backends", "search",
                *NEW, cwd=project)
    print(done.stdout)
    assert done.returncode == 0 and "knob TILE: 8 of [2, 4, 8, 16, 32]" in done.stdout, done.stderr
    run_and_merge(tmp_path / "w", project)
    assert "#define TILE 32  // kopt: knob TILE" in (project / "kernel.cu").read_text()


def test_larger_blocks_of_a_kernel_without_constants_are_kept(tmp_path: Path) -> None:
    """A multiprocessor holds at most 32 blocks: with 32 threads each, half of its threads."""
    project = repos.project(tmp_path / "p", {
        "scale.cu": SCALE, "reference.py": "def scale(x, **sizes):\n    return 2 * x\n"})
    done = kopt("new", "scale.cu", "--entry", "scale", "--shape", "x=n", "--shape", "out=n",
                "--grid", "(n + 31) // 32", "--block", "32", "--class", "big: n=67108864",
                "--backends", "search", *NEW, cwd=project)
    print(done.stdout, done.stderr)
    assert done.returncode == 0 and "knob SCALE_BLOCK: 32 of [32, 64, 128" in done.stdout
    run_and_merge(tmp_path / "w", project)
    assert re.search(r"#define SCALE_BLOCK (128|256|512|1024)\b", (
        project / "scale.cu").read_text())


def test_faster_model_new_is_kept_and_compared_with_torch_compile(tmp_path: Path) -> None:
    project = repos.project(tmp_path / "p", {"problem.py": module_case.PROBLEM})
    done = kopt("new", "problem.py", "--backends", "inbox", *NEW, cwd=project)
    assert done.returncode == 0, done.stderr
    setup = campaigns_of.create(tmp_path / "w", project / "manifest.yaml")
    module_case.hand_in(setup)
    finished(setup, 200.0)
    with campaigns.reading(setup) as reader:
        rows = {row.purpose: verdict_of(row) for row in reader.verdicts(setup.id)}
    compiled = rows[reference_lines.PURPOSE]
    assert compiled.correct and compiled.latency_us is not None, compiled.rejected_reason
    lines = module_case.reference_lines(setup)
    assert "x of eager" in lines[0] and "x of torch.compile" in lines[0], lines
