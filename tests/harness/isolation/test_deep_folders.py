"""Folders deeper than Python's own functions go down: deleted all the same, and no verdict lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.benchmark.kernel_time import cupti
from harness.benchmark.runs.workdir import CommandEnvironment, WorkingCopy
from harness.benchmark.spec.command_target import EndToEndTarget
from harness.benchmark.verdict.whole_program import measure
from harness.devices import inventory
from harness.formats import file_copy
from harness.settings import Settings, Trees
from tests.support.benchmark_case import judge, kernel

DIG = f"""
import os
def after():
    here = os.open(".", os.O_RDONLY)
    for _ in range({sys.getrecursionlimit() + 200}):
        if "d" not in os.listdir(here):
            os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
"""


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Leave nothing that pytest itself could not delete, should a test fail."""
    yield
    subprocess.run(["rm", "-rf", "--", tmp_path], check=True)


def dug(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-c", f"{DIG}\nafter()"], cwd=folder, check=True)
    return folder


def test_a_folder_of_any_depth_is_removed_and_nothing_it_points_at(tmp_path: Path) -> None:
    (kept := tmp_path / "kept").mkdir()
    folder = dug(tmp_path / "deep")
    (folder / "link").symlink_to(kept)
    with pytest.raises(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    (folder / "d").chmod(0o500)
    assert file_copy.remove(folder) and not folder.exists() and kept.exists()
    assert file_copy.remove(folder)  # gone is gone


def test_a_benchmark_that_digs_loses_no_verdict_and_leaves_nothing(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(80.0, DIG))
    assert verdict.valid and verdict.correct, verdict
    assert not (tmp_path / "scratch" / "reported").exists()


def test_a_program_that_digs_loses_no_verdict_and_leaves_nothing(tmp_path: Path) -> None:
    (tree := tmp_path / "tree").mkdir()
    (tree / "dig.py").write_text(f"{DIG}\nafter()")
    verdict = measure(EndToEndTarget(command="python dig.py"),
                      Trees(candidate=str(tree), incumbent=str(tree), reference=str(tree)),
                      inventory.find("cpu"), Settings(scratch=str(tmp_path / "scratch")))
    assert verdict.valid and not (tmp_path / "scratch" / "end-to-end").exists(), verdict


def test_what_is_dug_beside_a_profile_is_no_crash(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    side = WorkingCopy("candidate", tmp_path / "tree", tmp_path / "side", CommandEnvironment())
    with pytest.raises(cupti.KernelTimeUnavailable):
        cupti.observed(side, (), lambda: dug(next(side.home.glob("kernel-time-*"))))
    assert not list(side.home.iterdir())
