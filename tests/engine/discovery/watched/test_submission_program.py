"""A submission to a GPU MODE competition is called with the inputs of its `reference.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.discovery.watched import entry_source, shape_program, submission_program
from harness.errors import InputError

REFERENCE = """\
import torch

def ref_kernel(data):
    (x, out), options = data
    out.copy_(x * options["factor"])
    return out.double() + 1  # another dtype and value end no program

def generate_input(size, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, generator=generator)
    return (x, torch.empty(size)), {"factor": 2.0}
"""
SUBMISSION = """\
def custom_kernel(data):
    (x, out), options = data
    print(len(x))
    return out.copy_(x * options["factor"])
"""
SPECS = """\
# name: scale
description: |
  Multiply: x * 2
tests:
  - {"size": 3, "seed": 1}
  - {"size": 5, "seed": 2}
benchmarks:
  - {"size": 99, "seed": 3}
"""


def project(path: Path, specs: str = SPECS) -> Path:
    (path / "scale").mkdir()
    for name, text in (("reference.py", REFERENCE), ("submission.py", SUBMISSION),
                       ("task.yml", specs)):
        (path / "scale" / name).write_text(text)
    return path


@pytest.mark.parametrize(("small", "sizes"), [(True, ["3", "5"]), (False, ["99"])])
def test_program_calls_a_submission_with_its_tests_or_benchmarks(
        tmp_path: Path, small: bool, sizes: list[str]) -> None:
    pytest.importorskip("torch")
    text = submission_program.write(project(tmp_path), "scale/submission.py", "custom_kernel",
                                    small=small)
    path = tmp_path / submission_program.FILE
    path.parent.mkdir()
    path.write_text(text)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    assert [line for line in done.stdout.split() if line.isdecimal()][:1] == sizes[:1]
    assert done.stdout.count("not what ref_kernel returns") == len(sizes)


def test_other_sources_have_no_such_program(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(SUBMISSION)
    assert not submission_program.write(tmp_path, "kernel.py", "custom_kernel", small=True)
    path = project(tmp_path, "name: scale\n")
    assert not submission_program.write(path, "scale/submission.py", "custom_kernel", small=True)


def test_missing_program_is_suggested_from_the_tests_that_name_the_function(
        tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    entry = entry_source.find(SUBMISSION, "custom_kernel", "kernel.py")
    (tmp_path / "kernel.py").write_text(SUBMISSION)
    (tmp_path / "tests" / "test_other.py").write_text("def test_custom_kernels(): pass\n")
    assert shape_program.example(entry, tmp_path) == "python test_it.py"
    (tmp_path / "tests" / "test_scale.py").write_text("def test_it():\n    custom_kernel(1)\n")
    assert shape_program.example(entry, tmp_path) == "python -m pytest -q tests/test_scale.py"
    (tmp_path / "test_first.py").write_text("custom_kernel(1)\n")
    assert shape_program.example(entry, tmp_path) == "python test_first.py"


def test_specs_that_are_no_yaml_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        submission_program.write(project(tmp_path, "tests: [\n"), "scale/submission.py",
                                 "custom_kernel", small=True)
    assert str(raised.value.where).startswith("task.yml:")
