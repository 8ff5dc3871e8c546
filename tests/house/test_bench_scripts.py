"""Scripts of bench/ on a machine without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.slow
def test_table_of_templates_counts_shapes_that_were_not_measured(tmp_path: Path) -> None:
    row = {"template": "pointwise", "case": "x=randn(8192, 8192)", "source": "older", "us": 10.0,
           "dtype": "float32", "default_us": 10.0, "torch_us": 10.0, "vs_torch": 1.0,
           "of_goal": 0.99}
    (tmp_path / "templates.jsonl").write_text(json.dumps(row))
    done = subprocess.run(
        [sys.executable, "bench/templates.py", "--out", str(tmp_path), "--table"], cwd=ROOT,
        capture_output=True, text=True, check=True, timeout=60, env={"PYTHONPATH": str(ROOT)})
    lines = done.stdout.splitlines()
    assert "pointwise: 1 of 4 shapes reach 90%, 3 not measured, 1 measured with another source" \
        in lines
    assert "softmax: 0 of 4 shapes reach 90%, 4 not measured" in lines
