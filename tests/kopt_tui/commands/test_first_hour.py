"""The commands of docs/first_hour.sh work in a fresh clone of kopt."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import repos
from tests.support.paths import ROOT

VERBS = ("new", "propose", "evaluate", "loop", "run", "show", "approve", "diff", "merge")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "source", "faster"), [
    ("c", "scale.c", "define PASSES 1 "), ("command", "total.c", "define CHUNK 8 "),
    ("triton", "double.py", "BLOCK = 64 ")])
def test_first_hour_ends_with_the_merged_gain(
        kind: str, source: str, faster: str, tmp_path: Path) -> None:
    """The user commits nothing. Without a GPU, the Triton kind ends before approval."""
    repos.git(tmp_path, "clone", "--quiet", "--no-local", str(ROOT), "kopt")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "kopt"
    program.write_text(f"#!/bin/sh\nPYTHONPATH={tmp_path}/kopt "
                       f"exec {sys.executable} -m kopt_tui \"$@\"\n")
    program.chmod(0o755)
    path = os.pathsep.join((str(program.parent), str(Path(sys.executable).parent),
                            os.environ["PATH"]))
    done = subprocess.run(
        ["sh", str(tmp_path / "kopt" / "docs" / "first_hour.sh"), kind, str(tmp_path / "mine")],
        env={**os.environ, "PATH": path, "HOME": str(tmp_path)}, capture_output=True, text=True,
        check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert faster in (tmp_path / "mine" / source).read_text()
    begun = [line.split()[2] for line in done.stdout.splitlines() if line.startswith("$ kopt ")]
    nothing_timed = "no gain was measured here" in done.stdout
    assert begun == list(VERBS[:6]) if nothing_timed else begun == [*VERBS, "evaluate"]
    assert not (nothing_timed and kind != "triton")
    assert not (tmp_path / "mine" / ".git").exists()
