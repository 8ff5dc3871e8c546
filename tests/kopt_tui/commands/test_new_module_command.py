"""Tests `kopt new FILE` for a PyTorch module, and verdicts on files with ModelNew."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import pytest

from engine.manifest import load
from harness.requests import EvaluateRequest
from harness.verdict import Row, Verdict
from kopt_tui.cli import gpu_gate
from kopt_tui.main import main
from tests.support import repos
from tests.support.programs.command_line import answer, error_text, kopt

PROBLEM = """import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return torch.relu(self.linear(x))

batch_size = 4096
features = 4096

def get_inputs():
    return [torch.rand(batch_size, features)]

def get_init_inputs():
    return [features]
"""
Finished = tuple[Path, subprocess.CompletedProcess[str]]
WRONG = PROBLEM.replace("Model(", "ModelNew(").replace("torch.relu", "torch.sigmoid")


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Run `kopt new` once; return the project and the finished command."""
    project = tmp_path_factory.mktemp("project")
    (project / "problem.py").write_text(PROBLEM)
    repos.git(project, "init", "-q")
    done = kopt("new", "problem.py", "--yes", "--json", cwd=project)
    repos.git(project, "add", "-A")
    repos.git(project, "commit", "-q", "-m", "start")
    return project, done


@pytest.fixture
def made(command: Finished) -> Path:
    return command[0]


@pytest.mark.slow  # details: tests/engine/discovery/test_module_facts
def test_module_needs_no_flags_and_new_prints_its_reasons(command: Finished) -> None:
    project, done = command
    value = answer(done)
    assert value["files"] == ["kopt_task/adapter.py", "kopt_task/reference.py",
                              "kopt_task/task.yaml"]
    assert "batch_size" in str(value["inferred"])
    assert "no GPU here: sizes are reduced" in done.stderr
    assert "x: float32 [batch_size, " in done.stderr
    assert "(between 0 and 1 in a call)" in done.stderr
    written = load.load(project / "manifest.yaml")
    assert (written.target.task, written.kernel_source) == ("kopt_task/task.yaml", "problem.py")


@pytest.mark.slow
def test_file_with_model_new_is_a_candidate(made: Path, tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text(WRONG)
    done = kopt("evaluate", "manifest.yaml", "--candidate", str(tmp_path / "new.py"), "--json",
                cwd=made)
    verdict = answer(done, 1)
    assert verdict["valid"] and not verdict["correct"]


@pytest.mark.slow
@pytest.mark.parametrize(("call", "expected"), [
    ("torch.relu(x)", "cannot time them, so it keeps none (1 of 1 torch calls become 1 kernel"),
    ("torch.fft.fft(x).real", "no rewrite: no template covers fft, real; name a coding agent: "),
])
def test_new_says_what_a_template_rewrites_or_which_calls_no_template_covers(
        tmp_path: Path, call: str, expected: str) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM.replace("torch.relu(self.linear(x))", call))
    repos.git(tmp_path, "init", "-q")
    done = kopt("new", "problem.py", "--yes", cwd=tmp_path)
    assert expected in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_size_that_the_file_does_not_have_is_refused(made: Path) -> None:
    done = kopt("new", "problem.py", "--yes", "--force", "--size", "rows=3", cwd=made)
    assert done.returncode == 2
    assert "no size 'rows': sizes are batch_size, features" in error_text(done)


@pytest.mark.slow  # details: tests/engine/verify/test_reference_lines
def test_references_compare_with_eager_and_torch_compile(
        made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sources: list[str] = []

    def evaluate(request: EvaluateRequest, **_: object) -> Verdict:
        sources.append((Path(request.trees.candidate) / "problem.py").read_text())
        ratio = math.log(1.5 * len(sources))
        row = Row(config_class="small", correct=True, outcome="faster", log_ratio=ratio,
                  low=ratio - 0.1, high=ratio + 0.1, stderr=0.01, pairs=4,
                  latency_us=20.0 / len(sources), incumbent_us=30.0)
        return Verdict(valid=True, correct=True, latency_us=row.latency_us, rows=(row,),
                       latency_kind="measured-cpu", speedup=1.0)

    monkeypatch.setattr(gpu_gate.harness_client, "evaluate", evaluate)
    assert main(["evaluate", str(made / "manifest.yaml"), "--references"]) == 0
    assert "small: 1.50x of eager (30.0 us), 0.50x of torch.compile (10.0 us), below the bar" in \
        capsys.readouterr().out
    assert sources[0] == PROBLEM and "compile(super().forward)" in sources[1]
    faster = made / "faster.py"
    faster.write_text(f"{PROBLEM}\n\nclass ModelNew(Model):\n    pass\n")
    assert main(["evaluate", str(made / "manifest.yaml"), "--candidate", str(faster),
                 "--references"]) == 0
    assert "0.75x of torch.compile (5.00 us), below the bar" in capsys.readouterr().out
    assert sources[2] == faster.read_text() and "compile(super().forward)" in sources[3]


@pytest.mark.slow
def test_returned_dict_is_judged_by_name_and_not_by_order(tmp_path: Path) -> None:
    text = PROBLEM.replace("return torch.relu(self.linear(x))",
                           "return {'twice': x * 2, 'half': x.half()}").replace("4096", "64")
    (tmp_path / "problem.py").write_text(text)
    assert kopt("new", "problem.py", "--yes", "--no-check", cwd=tmp_path).returncode == 0
    for body, code in (("{'half': x.half(), 'twice': x + x}", 0),
                       ("{'half': x.half() * 2, 'twice': x}", 1)):
        (tmp_path / "new.py").write_text(
            f"{text}\n\nclass ModelNew(Model):\n    def forward(self, x):\n        return {body}\n")
        done = kopt("evaluate", "manifest.yaml", "--candidate", "new.py", "--json", cwd=tmp_path)
        assert answer(done, code)["correct"] == (code == 0), done.stdout
