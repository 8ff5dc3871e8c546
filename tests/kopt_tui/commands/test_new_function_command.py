"""`kopt new FILE:FUNCTION -- PROGRAM` makes a task from a function and the user's test of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.manifest import load
from harness.isolation import device_lock
from harness.tasks import task_file
from tests.support import repos
from tests.support.kernels import watched_case
from tests.support.paths import ROOT
from tests.support.programs.command_line import answer, error_text, kopt
from tests.support.programs.processes import until


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = watched_case.project(tmp_path / "ops")
    repos.git(path, "init", "-q")
    repos.git(path, "add", "-A")
    repos.git(path, "commit", "-q", "-m", "start")
    return path


@pytest.mark.slow  # tests/engine/discovery/watched tests its parts
def test_function_and_its_test_become_a_task_with_a_first_correct_verdict(project: Path) -> None:
    value = answer(kopt("new", "kernels.py:norm", "--yes", "--json", "--", sys.executable,
                        "test_it.py", cwd=project))
    assert value["first_verdict"]["correct"]
    assert value["reference"] == "kopt_task/reference.py:norm" and value["calls"] == 4
    task = task_file.load(project / "task.yaml")
    assert task.args[0].shape == ("rows", "cols") and task.adapter == "kopt_task/adapter.py:call"
    assert load.load(project / "manifest.yaml").kernel_source == "kernels.py"
    again = kopt("new", "kernels.py:norm", "--yes", "--manifest", "other.yaml", "--",
                 sys.executable, "-c", "raise SystemExit('it is not run')", cwd=project)
    assert again.returncode == 1 and "the task already exists" in error_text(again)


@pytest.mark.slow
def test_first_verdict_says_what_it_waits_for(project: Path, tmp_path: Path) -> None:
    errors = tmp_path / "errors.txt"
    words = [sys.executable, "-m", "kopt_tui", "new", "kernels.py:norm", "--yes", "--",
             sys.executable, "test_it.py"]
    with errors.open("w") as written, device_lock.acquire("cpu"):
        command = subprocess.Popen(words, cwd=project, stderr=written, stdout=subprocess.DEVNULL,
                                   env={**os.environ, "PYTHONPATH": str(ROOT)})
        waits = until(lambda: "waiting for cpu: held by" in errors.read_text(), 60.0)
    assert command.wait(timeout=60) == 0 and waits, errors.read_text()


@pytest.mark.slow
def test_shapes_replace_a_program(project: Path) -> None:
    done = kopt("new", "kernels.py:norm", "--yes", "--shape", "x=rows,cols", "--shape",
                "weight=cols", "--class", "a: rows=4 cols=32", "--class", "b: rows=8 cols=48",
                "--no-check", cwd=project)
    assert done.returncode == 0, done.stderr
    task = task_file.load(project / "task.yaml")
    assert [entry.shape for entry in task.classes] == [{"rows": 4, "cols": 32},
                                                       {"rows": 8, "cols": 48}]
    assert task.reference == "baseline"


@pytest.mark.parametrize(("words", "part"), [
    (("kernels.py:gather", "--shape", "out=4,4", "--shape", "table=9,4"),
     "neither a shape nor a value is given for index, cols (add --shape index=ROWS,COLS --shape "
     "cols=ROWS,COLS (--scalar NAME=VALUE for one that is no tensor), or give a program"),
    (("kernels.py:norm", "--shape", "x=n,m", "--shape", "weight=m"),
     "the sizes n, m have no value (use --class, such as --class 'small: n=64 m=64')"),
    (("kernels.py:norm", "--shape", "x=n,m", "--shape", "weight=m", "--class", "a: m=8"),
     "the size n has no value (use --class, such as --class 'small: n=64 m=64')"),
    (("kernels.py:norm",), "kernels.py:5, norm: no program is given"),
    (("kernels.py:norm", "--", sys.executable, "-c", "import gone_away"),
     "No module named 'gone_away' (<string>:1) (install gone_away"),
    (("kernels.py:norm", "--", sys.executable, "-c", "pass"),
     "the program never called the function"),
    (("kernels.py:norm", "--device", "cpu", "--", sys.executable, "-c",
      "raise AssertionError('Torch not compiled with CUDA enabled')"), "this machine has no GPU"),
    (("kernels.py:norm", "--device", "cpu", "--", sys.executable, "-c",
      "class InterpreterError(Exception): pass\nraise InterpreterError(repr(InterpreterError(repr("
      "TypeError('cannot convert x')))))"),
     "in Triton's interpreter, TypeError: cannot convert x (<string>:2) (this machine has no GPU"),
    (("kernels.py:norm", "--", sys.executable, "aborts.py"),
     "before it called the function: crashed (SIGABRT) in aborts.py:2, <module> (give"),
    (("kernels.py:norm", "--", sys.executable, "broken.py"), "KeyError: 'no' (broken.py:1)")])
def test_failure_states_the_next_step(words: tuple[str, ...], part: str, project: Path) -> None:
    (project / "broken.py").write_text("{}['no']\n")
    (project / "aborts.py").write_text("import os\nos.abort()\n")
    done = kopt("new", *words[:1], "--yes", *words[1:], cwd=project)
    assert done.returncode in (1, 2) and part in error_text(done)
    assert not (project / "task.yaml").exists()
