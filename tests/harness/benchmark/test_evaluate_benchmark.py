"""`kopt evaluate` judges patches by a project's own benchmark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support import repos
from tests.support.benchmarks import benchmark_case
from tests.support.benchmarks.benchmark_case import BENCH, kernel
from tests.support.paths import EXAMPLES
from tests.support.programs.command_line import kopt

EXAMPLE = EXAMPLES / "command_c"


HOISTED = (("(float)((x[r * cols + i] - mean) / sqrt(variance + EPS))",
            "(float)((x[r * cols + i] - mean) * scale)"),
           ("        for (int64_t i = 0; i < cols; i++)\n            y",
            "        double scale = 1 / sqrt(variance + EPS);\n"
            "        for (int64_t i = 0; i < cols; i++)\n            y"))


def evaluated(manifest: Path, *words: str) -> tuple[int, dict[str, object]]:
    done = kopt("evaluate", str(manifest), *words, "--alpha", "0.05", "--json")
    return done.returncode, json.loads(done.stdout)


def test_evaluate_command_judges_a_patch(tmp_path: Path) -> None:
    manifest = benchmark_case.project(tmp_path / "p")
    code, verdict = evaluated(manifest, "--patch", str(benchmark_case.patch(
        manifest, tmp_path / "a.patch", kernel_py=kernel(50.0))))
    assert code == 0 and verdict["latency_kind"] == "reported" and verdict["speedup"]
    assert not (tmp_path / "p" / "bench.csv").exists()


@pytest.mark.parametrize(("name", "text", "why"), [
    pytest.param("bench_py", BENCH + "# easier\n", "bench.py is frozen",
                 marks=pytest.mark.slow),
    ("kernel_py", "raise SystemExit('no')\n", "exited with 1: no")])
def test_evaluate_command_rejects_a_patch(name: str, text: str, why: str, tmp_path: Path) -> None:
    manifest = benchmark_case.project(tmp_path / "p", edit=["*.py"])
    code, verdict = evaluated(manifest, "--patch", str(benchmark_case.patch(
        manifest, tmp_path / "a.patch", **{name: text})))
    assert code == 1 and not verdict["valid"] and verdict["rejected_reason"] == why


def test_broken_benchmark_is_bad_input(tmp_path: Path) -> None:
    manifest = benchmark_case.project(tmp_path / "p", benchmark_command="python none.py")
    code, message = evaluated(manifest)
    assert code == 2
    assert message["error"]["what"].startswith(  # type: ignore[index]
        "the incumbent's own benchmark: exited with 2: ")


@pytest.mark.slow
def test_c_example_gains_from_a_hoisted_root(tmp_path: Path) -> None:
    """The example's real benchmark finds the gain of a hoisted square root."""
    project = tmp_path / "p"
    shutil.copytree(EXAMPLE, project)
    manifest = project / "manifest.yaml"
    manifest.write_text(manifest.read_text() + "budget: {pairs: 3}\n")
    repos.git(project, "init", "-q")
    repos.git(project, "add", "-A")
    repos.git(project, "commit", "-q", "-m", "start")
    source = (project / "layernorm.c").read_text()
    faster = source
    for old, new in HOISTED:
        assert faster.count(old) == 1
        faster = faster.replace(old, new)
    code, verdict = evaluated(manifest, "--patch", str(benchmark_case.patch(
        manifest, tmp_path / "a.patch", layernorm_c=faster)))
    assert code == 0 and verdict["correct"] and verdict["latency_kind"] == "reported", verdict
    assert verdict["speedup"] > 1.05  # type: ignore[operator]
