"""`kopt new kernel.cu` makes a task and a manifest from a CUDA file."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.manifest import load
from harness.tasks import task_file
from harness.tasks.target import Launch
from tests.support import device_case
from tests.support.command_line import error_text, kopt
from tests.support.device_case import GLOBAL, LAUNCHER

CLASSES = ("--scalar", "factor=2.0", "--class", "odd: n=331", "--class", "big: n=4194304")


def project(folder: Path, source: str) -> Path:
    return device_case.tree(folder / "mine", source)


def new(folder: Path, *words: str) -> tuple[int, str]:
    done = kopt("new", str(folder / "kernel.cu"), *words)
    return done.returncode, error_text(done) if done.returncode else done.stderr + done.stdout


def test_launcher_and_its_kernel_become_a_task(tmp_path: Path) -> None:
    folder = project(tmp_path, LAUNCHER)
    status, text = new(folder, *CLASSES, "--entry", "twice")
    assert status == 0, text
    assert task_file.load(folder / "task.yaml") == device_case.target(launch=None, flops=None)
    written = load.load(folder / "manifest.yaml")
    assert (written.target_lang, written.target_backend, written.gpu.device) == (
        "cuda", "CUDA", "auto")
    assert "knobs: TILE (3); 3 configurations" in text
    assert "first verdict: " in text and "disagrees" not in text


def test_global_function_is_launched_as_in_its_source(tmp_path: Path) -> None:
    folder = project(tmp_path, LAUNCHER)
    status, text = new(folder, *CLASSES, "--entry", "twice_kernel")
    assert status == 0, text
    assert task_file.load(folder / "task.yaml").by_baseline, "no function of this name"
    assert "reference          the kernel as it is" in text
    assert task_file.load(folder / "task.yaml").launch == Launch(
        grid=("(n + TILE - 1) // TILE",), block=("TILE",))
    for reason in ("x                  input float32 [n]  (only read)",
                   "out                output float32 [n]  (written to)",
                   "grid               (n + TILE - 1) // TILE  (<<<...>>> in the source"):
        assert reason in text


def test_missing_launch_of_a_global_function_must_be_given(tmp_path: Path) -> None:
    folder = project(tmp_path, GLOBAL)
    status, text = new(folder, *CLASSES)
    assert status == 2 and "grid (in the sizes, scalars and constants of the source) is not " \
        "given (use --grid DIMS)" in text
    status, text = new(folder, *CLASSES, "--grid", "(n + TILE - 1) // TILE", "--block", "TILE")
    assert status == 0, text
    assert task_file.load(folder / "task.yaml") == device_case.target(flops=None)


@pytest.mark.parametrize(("source", "advice"), [
    ("void run(float *x, int n) {}", 'write extern "C" before a function of the host'),
    ("#include <torch/extension.h>\nvoid run(torch::Tensor x) {}",
     "it is a torch extension: name the Python function that builds and calls it")])
def test_file_without_an_entry_says_the_next_step(
        tmp_path: Path, source: str, advice: str) -> None:
    status, text = new(project(tmp_path, source))
    assert status == 2 and advice in text


def test_flag_overrides_an_inferred_role(tmp_path: Path) -> None:
    folder = project(tmp_path, LAUNCHER)
    status, text = new(folder, *CLASSES, "--entry", "twice", "--role", "out=inout")
    assert status == 0, text
    assert task_file.load(folder / "task.yaml").args[1].role == "inout"


def test_second_kernel_of_a_project_gets_a_task_file_of_its_own(tmp_path: Path) -> None:
    folder = project(tmp_path, LAUNCHER)
    assert new(folder, *CLASSES, "--entry", "twice")[0] == 0
    (folder / "other.cu").write_text(LAUNCHER)
    done = kopt("new", str(folder / "other.cu"), "--manifest", str(folder / "other.yaml"),
                *CLASSES, "--entry", "twice")
    assert done.returncode == 0, done.stderr
    assert task_file.load(folder / "other_task.yaml").source == "other.cu"
