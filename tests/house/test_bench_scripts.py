"""Scripts of bench/ on a machine without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import gpu_missing
from tests.support.paths import ROOT

ROW = {"template": "pointwise", "case": "x=randn(8192, 8192)", "source": "older", "us": 10.0,
       "dtype": "float32", "default_us": 10.0, "torch_us": 10.0, "vs_torch": 1.0, "of_goal": 0.99}

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
    (tmp_path / "templates.jsonl").write_text(json.dumps(ROW))
    done = subprocess.run(
        [sys.executable, "bench/templates.py", "--out", str(tmp_path), "--table"], cwd=ROOT,
        capture_output=True, text=True, check=True, timeout=60, env={"PYTHONPATH": str(ROOT)})
    lines = done.stdout.splitlines()
    assert "pointwise: 1 of 4 shapes reach 90%, 3 not measured, 1 measured with another source" \
        in lines
    assert "softmax: 0 of 4 shapes reach 90%, 4 not measured" in lines


@pytest.mark.slow
@pytest.mark.parametrize(("words", "printed"), [
    (["--only", "gemm", "--case", "fp8"], ["gemm: 0 of 2 shapes reach 95%, 2 not measured"]),
    (["--only", "pointwise"], [
        "| pointwise | `x=randn(8192, 8192)` | float32 | 10.0 | 10.0 | 10.0 | 1.0 | 0.99 |",
        "pointwise: 1 of 4 shapes reach 90%, 3 not measured, 1 measured with another source"]),
    (["--only", "dequantise", "moe", "--case", "bf16"],
     ["dequantise: 0 of 3 shapes reach 90%, 3 not measured",
      "moe: 0 of 4 shapes reach 100%, 4 not measured"]),
])
def test_templates_print_only_what_was_asked_for(words: list[str], printed: list[str],
                                                 tmp_path: Path) -> None:
    (tmp_path / "templates.jsonl").write_text(json.dumps(ROW))
    done = subprocess.run(
        [sys.executable, "bench/templates.py", "--out", str(tmp_path), "--table", *words], cwd=ROOT,
        capture_output=True, text=True, check=True, timeout=60, env={"PYTHONPATH": str(ROOT)})
    assert done.stdout.splitlines()[2:] == printed


@pytest.mark.slow
@pytest.mark.parametrize(("words", "why"), [
    (["--only", "gemm", "--case", "fp9"], "no case of gemm has 'fp9' in its text or as a dtype"),
    (["--only", "gem"], "there is no template gem")])
def test_templates_refuse_what_matches_nothing(words: list[str], why: str) -> None:
    done = subprocess.run(
        [sys.executable, "bench/templates.py", "--table", *words], cwd=ROOT, capture_output=True,
        text=True, check=False, timeout=60, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 2 and done.stderr.splitlines()[-1].endswith(why)
