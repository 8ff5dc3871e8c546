"""Folders deeper than Python's recursion limit are deleted and do not prevent a verdict."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.benchmark.kernel_time import cupti
from harness.benchmark.kernel_time.profile import KernelTimeUnavailable
from harness.benchmark.runs.workdir import CommandEnvironment, WorkingCopy
from harness.benchmark.spec.command_target import EndToEndTarget
from harness.benchmark.verdict.whole_program import measure_end_to_end
from harness.devices import inventory
from harness.formats import file_copy
from harness.settings import Settings, Trees
from tests.support.benchmarks.benchmark_case import judge, kernel

MAKE_DEEP_FOLDERS = f"""
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
def removed_afterwards(tmp_path: Path) -> Iterator[None]:
    """Remove what pytest itself could not delete after a failed test."""
    yield
    subprocess.run(["rm", "-rf", "--", tmp_path], check=True)


def deep_folder(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-c", f"{MAKE_DEEP_FOLDERS}\nafter()"], cwd=folder, check=True)
    return folder


def test_deep_folder_is_removed_and_link_targets_are_kept(tmp_path: Path) -> None:
    (kept := tmp_path / "kept").mkdir()
    folder = deep_folder(tmp_path / "deep")
    (folder / "link").symlink_to(kept)
    with pytest.raises(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    (folder / "d").chmod(0o500)
    assert file_copy.remove(folder) and not folder.exists() and kept.exists()
    assert file_copy.remove(folder)  # absent already


def test_benchmark_that_makes_deep_folders_gets_a_verdict(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(80.0, MAKE_DEEP_FOLDERS))
    assert verdict.valid and verdict.correct, verdict
    assert not (tmp_path / "scratch" / "reported").exists()


def test_program_that_makes_deep_folders_gets_a_verdict(tmp_path: Path) -> None:
    (tree := tmp_path / "tree").mkdir()
    (tree / "dig.py").write_text(f"{MAKE_DEEP_FOLDERS}\nafter()")
    verdict = measure_end_to_end(EndToEndTarget(command="python dig.py"),
                      Trees(candidate=str(tree), incumbent=str(tree), reference=str(tree)),
                                 inventory.find("cpu"), Settings(scratch=str(tmp_path / "scratch")))
    assert verdict.valid and not (tmp_path / "scratch" / "end-to-end").exists(), verdict


def test_deep_folder_in_a_profile_gives_no_kernel_time_and_is_removed(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    side = WorkingCopy("candidate", tmp_path / "tree", tmp_path / "side", CommandEnvironment())
    with pytest.raises(KernelTimeUnavailable):
        cupti.CuptiProfiler(()).observe(
            side, lambda: deep_folder(next(side.home.glob("kernel-time-*"))))
    assert not list(side.home.iterdir())
