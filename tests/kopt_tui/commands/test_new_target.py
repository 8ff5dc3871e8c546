"""The argument of `kopt new WHAT` determines the project, the manifest and the kind of target."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from harness.errors import InputError, Refused
from kopt_tui.cli.new import new_target
from kopt_tui.main import main
from tests.support import repos
from tests.support.programs.command_line import EXAMPLE

MODULE = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def flags(**given: object) -> argparse.Namespace:
    none = dict.fromkeys(("what", "manifest", "project", "source", "entry", "task", "benchmark",
                          "reference", "shape", "classes", "csv", "check", "metrics", "run"))
    return argparse.Namespace(**{**none, "each": False, **given})


@pytest.mark.parametrize(
    ("what", "kind", "entry"),
    [("kernels.py:rms_norm", "function", "rms_norm"), ("kernels.py:Norm.apply", "function",
                                                       "Norm.apply"),
     ("model.py", "module", None), ("model.py:Model", "function", "Model"),
     ("a.cu", "gpu_source", None), ("a.c:f", "kernel", "f"), ("", "kernel", None)])
def test_file_and_entry_after_the_colon_choose_the_kind(
        what: str, kind: str, entry: str | None, tmp_path: Path) -> None:
    for name, text in (("kernels.py", ""), ("model.py", MODULE), ("a.cu", ""), ("a.c", "")):
        (tmp_path / name).write_text(text)
    args = flags(what=str(tmp_path / what))
    project, manifest = new_target.place(args)
    assert (project, manifest) == (tmp_path, tmp_path / "manifest.yaml")
    assert new_target.choose(project, args) == kind
    assert args.entry == entry


def test_project_of_a_file_is_the_repository_that_it_lies_in(tmp_path: Path) -> None:
    repos.git(tmp_path, "init", "-q")
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "norm.py").write_text("")
    args = flags(what=str(tmp_path / "ops" / "norm.py:f"))
    assert new_target.place(args)[0] == tmp_path and args.source == "ops/norm.py"


def test_large_folder_that_is_no_repository_is_refused(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel in a home folder: the whole folder would be copied for each verdict."""
    monkeypatch.setattr(new_target, "MOST_FILES", 3)
    for name in "abcd":
        (tmp_path / f"{name}.cu").write_text("")
    args = flags(what=str(tmp_path / "a.cu"))
    with pytest.raises(Refused, match="no git repository, and holds more than 3 files"):
        new_target.place(args)
    repos.git(tmp_path, "init", "-q")
    assert new_target.place(flags(what=str(tmp_path / "a.cu")))[0] == tmp_path


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the file does not exist"):
        new_target.place(flags(what=str(tmp_path / "gone.py:f")))


def test_what_argument_equals_source_and_entry_flags(tmp_path: Path,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rmsnorm.c").write_bytes((EXAMPLE / "rmsnorm.c").read_bytes())
    (tmp_path / "r.py").write_text("def f(x, weight, eps):\n    return x\n")
    code = main(["new", str(tmp_path / "rmsnorm.c:rmsnorm"), "--yes", "--reference", "r.py:f",
                 "--shape", "x=rows,cols", "--shape", "weight=cols", "--shape", "out=rows,cols",
                 "--scalar", "eps=1e-6", "--class", "tall: rows=64 cols=8"])
    assert code == 0, capsys.readouterr().err
    assert "source: rmsnorm.c" in (tmp_path / "task.yaml").read_text()
