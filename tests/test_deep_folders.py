"""Folders deeper than Python's own functions go down: deleted all the same, and no verdict lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from reported_case import judge, kernel

from harness import copies

DEPTH = sys.getrecursionlimit() + 200
DIG = f"""
import os
def after():
    here = os.open(".", os.O_RDONLY)
    for _ in range({DEPTH}):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
"""


def dug(folder: Path) -> Path:
    folder.mkdir()
    subprocess.run([sys.executable, "-c", f"{DIG}\nafter()"], cwd=folder, check=True)
    return folder


def test_a_folder_of_any_depth_is_removed_and_nothing_it_points_at(tmp_path: Path) -> None:
    (kept := tmp_path / "kept").mkdir()
    folder = dug(tmp_path / "deep")
    (folder / "link").symlink_to(kept)
    with pytest.raises(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    (folder / "d").chmod(0o500)
    assert copies.remove(folder) and not folder.exists() and kept.exists()
    assert copies.remove(folder)  # gone is gone


def test_a_benchmark_that_digs_loses_no_verdict_and_leaves_nothing(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(80.0, DIG.replace("os.mkdir(", "_dig(").replace(
        "import os\n", "import contextlib, os\ndef _dig(*a, **k):\n"
        "    with contextlib.suppress(FileExistsError):\n        os.mkdir(*a, **k)\n")))
    assert verdict.valid and verdict.correct, verdict
    assert not os.listdir(tmp_path / "scratch" / "reported") \
        if (tmp_path / "scratch" / "reported").exists() else True
