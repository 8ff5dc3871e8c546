"""`kopt new`: a kernel's parameters are set, refused or confirmed; `--run` runs the benchmark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.discovery.classes import sample_runs
from engine.manifest import load
from harness.benchmark.spec.command_target import BenchmarkMode
from harness.errors import InputError
from kopt_tui.main import main
from tests.support import repos
from tests.support.programs.command_line import EXAMPLE, answer, converse, kopt

BENCH = """\
import csv
from kernel import COST

open("generated.h").close()
with open("bench.csv", "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["m", "err", "us"])
    for m in (1, 2, 4, 8):
        writer.writerow([m, 0, m * COST])
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "rmsnorm")
    (tmp_path / "rmsnorm" / "manifest.yaml").unlink(missing_ok=True)
    return tmp_path / "rmsnorm"


def test_set_changes_any_kernel_parameter(kernel: Path,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "--project", str(kernel), "--yes", "--set", "performance_target=1.5x",
                 "--set", "git_commit=false", "--set", "edit=rmsnorm.c, extra/*.h", "--set",
                 "full_test_command=make check", "--set", "max_iterations=7"]) == 0
    shown = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()
             if line.startswith("  ")}
    assert "1.5x" in shown["performance_target"] and "7" in shown["max_iterations"]
    assert "flagged  (default)" in shown["approval"]
    written = load.load(kernel / "manifest.yaml")
    assert (written.performance_target, written.git_commit) == ("1.5x", False)
    assert (written.edit, written.full_test_command) == (("rmsnorm.c", "extra/*.h"), "make check")
    assert (written.max_iterations, written.target.kind) == (7, "kernel")


@pytest.mark.parametrize(("words", "message"), [
    (("--set", "performance_target=1.5x", "--set", "nonsense=3"),
     "there is no parameter 'nonsense'"),
    (("--set", "performence_target=2x"), "did you mean 'performance_target'?"),
    (("--metrics", "us"), "there is no parameter 'metrics'"),
    (("--set", "execution_mode=cloud"), "execution_mode: 'cloud' is not one of repo, workspace"),
    (("--set", "red"), "cannot read --set red"),
])
def test_unknown_parameter_bad_value_or_bad_syntax_is_refused(
        words: tuple[str, ...], message: str, kernel: Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["new", "--project", str(kernel), "--yes", "--force", *words])
    printed = capsys.readouterr().err
    assert code == 2 and message in printed and printed.count("\n") == 1, printed
    assert not (kernel / "manifest.yaml").exists()


def test_kernel_parameters_are_confirmed_or_edited(kernel: Path) -> None:
    answers = {"NAME=VALUE changes": "colour=red", "there is no parameter": "approval=never",
               "'never' is not one of": "performance_target=2x", "performance_target 2x": ""}
    status, screen = converse(["new", "--project", str(kernel)], answers)
    assert status == 0, screen
    written = load.load(kernel / "manifest.yaml")
    assert (written.performance_target, written.approval) == ("2x", "flagged")


def test_json_has_the_kernel_parameters(kernel: Path) -> None:
    value = answer(kopt("new", "--project", str(kernel), "--json", "--set", "git_branch=mine"))
    assert value["parameters"]["git_branch"] == {"value": "mine", "from": "given"}
    assert value["parameters"]["edit"] == {"value": "rmsnorm.c", "from": "the task's source"}
    assert load.load(kernel / "manifest.yaml").edit == ()


def test_benchmark_run_sets_up_before_building(tmp_path: Path) -> None:
    project = repos.project(tmp_path / "p", {"bench.py": BENCH, "kernel.py": "COST = 2.0\n"})
    assert main(["new", "--project", str(project), "--yes", "--run", "--device", "cpu", "--set",
                 "setup_command=touch made.h", "--set", "build_command=mv made.h generated.h"]) == 0
    written = load.load(project / "manifest.yaml")
    assert (written.setup_command, written.target.csv) == ("touch made.h", "bench.csv")
    assert not (project / "generated.h").exists()
    mode = BenchmarkMode(name="full", command="python bench.py", csv="bench.csv")
    with pytest.raises(InputError, match="does not build: exited with 1"):
        sample_runs.run_once(project, mode, setup="false", device="cpu")
