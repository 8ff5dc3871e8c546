"""A whole campaign on a PyTorch module on the CPU: drafted, judged with torch.compile, exported."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.campaign import setup as campaigns_of
from engine.campaign.setup import Setup
from engine.journal.decoded.recorded import verdict_of
from engine.journal.judged_rows import VerdictRow
from engine.verify import reference_lines
from tests.support import repos
from tests.support.engines import campaigns
from tests.support.kernels import module_case
from tests.support.programs.command_line import kopt

BESIDE = """import runpy
import sys
import torch

problem, solution = map(runpy.run_path, sys.argv[1:])
made = []
for Made in (problem["Model"], solution["ModelNew"]):
    torch.manual_seed(7)
    made.append(Made(*problem["get_init_inputs"]()))
inputs = problem["get_inputs"]()
torch.testing.assert_close(*(module(*inputs) for module in made))
"""
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(900),
              pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")]


def campaign_of(project: Path, workspace: Path) -> Setup:
    """Create a campaign from a drafted manifest, with few pairs for each verdict."""
    manifest = project / "manifest.yaml"
    manifest.write_text(manifest.read_text() + "\nbudget: {pairs: 4}\n")
    repos.git(project, "add", "-A")
    repos.git(project, "commit", "-q", "-m", "task")
    return campaigns_of.create(workspace, manifest)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++ on the CPU")
def test_faster_model_new_is_kept_compared_with_torch_compile_and_merged(tmp_path: Path) -> None:
    project = tmp_path / "p"
    repos.project(project, {"problem.py": module_case.PROBLEM})
    done = kopt("new", "problem.py", "--yes", "--rounds", "1", "--backends", "inbox",
                "--approval", "auto", "--device", "cpu", cwd=project)
    assert done.returncode == 0, done.stderr
    setup = campaign_of(project, tmp_path / "w")
    module_case.hand_in(setup)
    assert campaigns.run(setup, limit_s=900.0).error is None
    assert len(campaigns.candidates(setup, "kept")) == 1
    assert (campaigns.campaign(setup).speedup or 0.0) > 5.0
    _check_export(setup, tmp_path / "out")
    with campaigns.reading(setup) as reader:
        rows: dict[str, VerdictRow] = {row.purpose: row for row in reader.verdicts(setup.id)}
    compiled = verdict_of(rows[reference_lines.PURPOSE])
    assert compiled.correct and compiled.latency_us is not None, compiled.rejected_reason
    lines = module_case.reference_lines(setup)
    assert "x of eager" in lines[0] and "x of torch.compile" in lines[0], lines
    merged = kopt("merge", setup.id, workspace=setup.workspace, cwd=project)
    assert merged.returncode == 0, merged.stderr
    assert "class ModelNew(Model)" in (project / "problem.py").read_text()


def test_campaign_without_a_gpu_ends_because_rewrites_cannot_be_timed(tmp_path: Path) -> None:
    project = tmp_path / "p"
    small = module_case.PROBLEM.replace("range(40)", "range(1)").replace("512", "8")
    repos.project(project, {"problem.py": small})
    done = kopt("new", "problem.py", "--yes", "--rounds", "3", "--device", "cpu", "--backends",
                "search,rewrite-template", cwd=project)
    assert done.returncode == 0, done.stderr
    assert "cannot time them, so it keeps none" in done.stdout
    setup = campaign_of(project, tmp_path / "w")
    assert campaigns.run(setup, limit_s=900.0).error is None
    reason = campaigns.campaign(setup).reason
    assert "found correct, but without a GPU no rewrite can be timed" in reason, reason


def _check_export(setup: Setup, out: Path) -> None:
    """Check the table, and that the solution runs beside the problem as KernelBench runs both."""
    done = kopt("report", setup.id, "--format", "kernelbench", "--output", str(out),
                workspace=setup.workspace)
    assert done.returncode == 0, done.stderr
    table = json.loads((out / "fast_p.json").read_text())
    assert table["geo_mean_speedup"] == pytest.approx(campaigns.campaign(setup).speedup)
    assert set(table["fast_p"].values()) == {1.0}
    subprocess.run([sys.executable, "-I", "-c", BESIDE, str(setup.repo.project / "problem.py"),
                    str(out / "problem.py")], check=True)
