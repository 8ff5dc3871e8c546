"""Tests `kopt new` for a C kernel with a reference of its own, in a folder of a repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.tasks import task_file
from tests.support import repos
from tests.support.programs.command_line import answer, error_text, kopt

CONVOLUTION = """void blur(const float *in, float *out, int n) {
    for (int i = 0; i < n; i++) out[i] = 0.5f * in[i];
}
"""
OF_BLUR = ("--shape", "in=n", "--shape", "out=n", "--class", "a: n=64", "--yes")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder inside a repository, with a kernel and its reference."""
    repos.git(tmp_path, "init", "-q")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "blur.c").write_text(CONVOLUTION)
    (tmp_path / "sub" / "right.py").write_text("def blur(in_):\n    return 0.5 * in_\n")
    return tmp_path / "sub"


def test_reference_may_append_an_underscore_to_an_argument_that_is_a_python_keyword(
        folder: Path) -> None:
    done = kopt("new", "blur.c", "--reference", "right.py:blur", *OF_BLUR, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "no knobs" in done.stdout and "kopt loop" not in done.stdout
    assert task_file.load(folder.parent / "task.yaml").reference == "sub/right.py:blur"
    verdict = answer(kopt("evaluate", str(folder.parent / "manifest.yaml"), "--quick", "--json",
                          cwd=folder))
    assert verdict["correct"] is True, verdict


MEAN = """void blur(const float *in, const float *weight, float *out, int n, int k) {
    for (int i = 0; i < n; i++) out[i] = in[i] * k * weight[k - 1];
}
"""


@pytest.mark.parametrize(("weight", "value", "shape"), [
    ("weight=7", 7, {"n": 64}), ("weight=k", "k", {"n": 64, "k": 7})])
def test_scalar_of_an_integer_argument_holds_for_all_classes(
        weight: str, value: int | str, shape: dict[str, int], folder: Path) -> None:
    (folder / "blur.c").write_text(MEAN)
    (folder / "right.py").write_text("def blur(in_, weight, k):\n    return in_ * k * weight[-1]\n")
    flags = ("--reference", "right.py:blur", "--shape", weight, *OF_BLUR)
    done = kopt("new", "blur.c", "--scalar", "k=7", *flags, cwd=folder)
    assert done.returncode == 0 and "first verdict: correct" in done.stdout, done.stderr
    task = task_file.load(folder.parent / "task.yaml")
    assert (task.args[-1].value, task.classes[0].shape) == (value, shape)
    for scalar, why in {"k=7.5": "the value of k is '7.5', a whole number is needed",
                        "kay=7": "blur has no argument 'kay'"}.items():
        done = kopt("new", "blur.c", "--scalar", scalar, "--task", "other.yaml", "--force", *flags,
                    cwd=folder)
        assert done.returncode == 2 and why in error_text(done)


@pytest.mark.parametrize(("reference", "why"), [
    ("gone.py:blur", "the reference's file 'gone.py' does not exist (write FILE:FUNCTION)"),
    ("right.py:sharpen", "there is no function 'sharpen' (write FILE:FUNCTION)"),
    ("wrong.py:blur", "parameter image is not an argument of blur (it may take in_, n, out)"),
    ("/etc/hosts:blur", "the reference's file lies outside the project")])
def test_reference_that_cannot_be_called_is_refused_before_anything_is_written(
        folder: Path, reference: str, why: str) -> None:
    (folder / "wrong.py").write_text("def blur(image, n):\n    return 0.5 * image\n")
    done = kopt("new", "blur.c", "--reference", reference, *OF_BLUR, cwd=folder)
    assert done.returncode == 2 and why in error_text(done)
    assert not (folder.parent / "task.yaml").exists()
