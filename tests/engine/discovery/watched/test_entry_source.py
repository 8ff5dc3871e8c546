"""Tests how a function is found in its source, and the error if it cannot be a task's entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.discovery.watched import entry_source
from harness.errors import InputError

SOURCE = """\
import triton

@triton.jit
def kernel(x, n):
    pass

@decorated
def run(x, *, eps=1e-6):
    M, N = x.shape
    batch = x.shape[0]
    kernel[(M,)](x, N)

class Module:
    def forward(self, x):
        pass

    @classmethod
    def scaled(cls, x):
        pass
"""


def test_entry_begins_at_its_decorators_and_sizes_have_the_names_in_the_source() -> None:
    entry = entry_source.find(SOURCE, "run", "k.py")
    assert (entry.lines, entry.parameters) == ((7,), ("x", "eps"))
    assert entry.sizes[("x", 1)] == "n" and entry.defaults == {"eps": 1e-6}


def test_function_of_a_source_without_functions_is_sought_in_another_file() -> None:
    with pytest.raises(InputError, match=r"no function 'run' \(name one of another file\)"):
        entry_source.find("print(1)\n", "run", "k.py")


def test_triton_kernel_is_refused_and_its_launching_functions_are_named() -> None:
    with pytest.raises(InputError, match=r"k.py:4: 'kernel' is a Triton kernel.*launches it: run"):
        entry_source.find(SOURCE, "kernel", "k.py")


def test_unknown_function_is_refused_and_the_nearest_name_suggested() -> None:
    with pytest.raises(InputError, match=r"no function 'runs'.*did you mean 'run'"):
        entry_source.find(SOURCE, "runs", "k.py")


def test_receiver_of_a_method_is_not_an_argument() -> None:
    entry = entry_source.find(SOURCE, "Module.forward", "k.py")
    assert entry.owner == "Module" and entry.hidden == 1


def test_class_method_is_called_on_its_class() -> None:
    entry = entry_source.find(SOURCE, "Module.scaled", "k.py")
    assert not entry.owner and entry.hidden == 1


def test_functions_that_launch_kernels_are_listed_first() -> None:
    assert entry_source.public_functions("def a(): pass\n" + SOURCE) == ["run", "a"]


def test_function_with_an_underscore_is_listed_where_there_is_no_other() -> None:
    assert entry_source.public_functions("def _f(x): ...\ng = compiled(_f)\n") == ["_f"]
    assert entry_source.public_functions("def _f(x): ...\ndef g(x): ...\n") == ["g"]


def test_files_of_kernels_elsewhere_are_those_of_the_project(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("ops/kernels.py", "ops/layers.py")]
    assert entry_source.other_files([*files, "/usr/lib/gone.py"], tmp_path, "ops/layers.py") == [
        "ops/kernels.py"]
