"""A whole campaign on a PyTorch module that a template rewrites, judged in Triton's interpreter."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.campaign import setup as campaigns_of
from engine.journal.decoded.recorded import verdict_of
from tests.support import repos
from tests.support.engines import campaigns
from tests.support.programs.command_line import kopt

PROBLEM = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2 + 1, dim=1)


def get_inputs():
    return [torch.randn(8, 100)]


def get_init_inputs():
    return []
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900),
              pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")]


def test_a_module_is_rewritten_without_configuration_and_judged(tmp_path: Path) -> None:
    project = tmp_path / "p"
    repos.project(project, {"problem.py": PROBLEM})
    done = kopt("new", "problem.py", "--yes", "--rounds", "1", "--device", "cpu", cwd=project)
    assert done.returncode == 0, done.stderr
    repos.git(project, "add", "-A")
    repos.git(project, "commit", "-q", "-m", "task")
    setup = campaigns_of.create(tmp_path / "w", project / "manifest.yaml")
    assert campaigns.run(setup, limit_s=900.0).error is None
    with campaigns.reading(setup) as reader:
        rewritten = next(each.id for each in reader.candidates(setup.id)
                         if each.slot == "rewrite-templates")
        judged = next(verdict_of(row) for row in reader.verdicts(setup.id)
                      if row.candidate == rewritten)
    assert judged.valid and judged.correct and judged.latency_us is None
    assert any("Triton's interpreter" in note for note in judged.notes), "why it is not timed"
