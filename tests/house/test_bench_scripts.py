"""Scripts of bench/ that measure on a GPU report in one line that there is none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import gpu_missing
from tests.support.paths import ROOT


@pytest.mark.parametrize("script", ["timeline.py", "verdict_seconds.py", 
                                    pytest.param("templates.py", marks=pytest.mark.slow)])
def test_script_without_gpu_ends_with_one_line(script: str) -> None:
    if not gpu_missing():
        pytest.skip("this machine has a GPU")
    done = subprocess.run([sys.executable, f"bench/{script}"], cwd=ROOT, capture_output=True,
                          text=True, check=False, timeout=60, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.startswith(f"{script} measures on a GPU: ")
    assert done.stderr.count("\n") == 1
