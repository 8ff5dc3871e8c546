"""`kopt new definition.json` makes a task from a definition of flashinfer-bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.tasks import task_file
from harness.tasks.target import Target
from tests.support import repos
from tests.support.benchmarks import bench_case
from tests.support.programs.command_line import answer, error_text, kopt


@pytest.fixture
def data_set(tmp_path: Path) -> Path:
    repos.git(tmp_path, "init", "-q")
    bench_case.write(tmp_path)
    return tmp_path


def new(folder: Path, *flags: str) -> tuple[dict[str, Any], Target]:
    facts = answer(kopt("new", f"definitions/gather/{bench_case.NAME}.json", "--yes", "--json",
                        *flags, cwd=folder))
    return facts, task_file.load(folder / "kopt_task/task.yaml")


def test_definition_and_its_workloads_become_a_task_with_a_correct_first_verdict(
        data_set: Path) -> None:
    facts, task = new(data_set)
    assert facts["first_verdict"] == {"correct": True, "not_judged": "",
                                      "classes": ["bags2-picked5"]}  # no GPU: only the smallest
    assert [(each.name, each.shape, each.weight) for each in task.classes] == [
        ("bags2-picked5", {"bags": 2, "picked": 5}, 1.0),
        ("bags3-picked40", {"bags": 3, "picked": 40}, 2.0),
        ("bags4-picked90", {"bags": 4, "picked": 90}, 1.0)]
    assert [(arg.name, arg.shape, arg.value) for arg in task.args] == [
        ("table", (32, 64), None), ("offsets", ("bags + 1",), None), ("rows", ("picked",), None),
        ("scale", None, 0.5)]
    assert (task.returns, task.return_dtypes, task.entry) == (True, ("float32",), "run")
    assert task.source == f"solutions/{bench_case.NAME}/main.py"
    assert "picked == offsets[-1]: the workloads meet it" in str(facts["inferred"])
    assert set(task.frozen_files) == {"kopt_task/reference.py", "kopt_task/adapter.py", *(
        f"kopt_task/{each.name}.safetensors" for each in task.classes)}


@pytest.mark.slow
def test_solution_is_the_baseline_and_writes_to_its_outputs(data_set: Path) -> None:
    (data_set / "solution.json").write_text(json.dumps(bench_case.solution()))
    facts, task = new(data_set, "--solution", "solution.json")
    assert facts["first_verdict"]["correct"]
    assert task.source == f"solutions/{bench_case.NAME}/src/main.py" and not task.returns
    assert [arg.name for arg in task.args if arg.kind == "output"] == ["out"]


@pytest.mark.parametrize("fields, flags, words", [
    ({"op_type": "sampling"}, (), "choose a definition whose results are not random"),
    ({"outputs": {"out": {"shape": None, "dtype": "float32"}}}, (), "give it the shape []"),
    ({"outputs": {"out": {"shape": ["bags"], "dtype": "float4_e2m1"}}}, (), "pack two values"),
    ({"constraints": ["bounds == bags + 2"]}, (), "workload uuid-0: the constraint bounds"),
    ({}, ("--class", "small: bags=2 bounds=3 picked=5"), "values that offsets may have"),
    ({"axes": {}}, (), "'height' is not defined"),
    ({"name": "other"}, (), "--workloads FILE, or --class")])
def test_unsupported_definition_is_refused_with_the_next_step(tmp_path: Path,
                                                              fields: dict[str, Any],
                                                              flags: tuple[str, ...],
                                                              words: str) -> None:
    path = bench_case.write(tmp_path, **fields)
    done = kopt("new", str(path), "--yes", "--no-check", "--project", str(tmp_path), *flags)
    assert done.returncode == 2 and words in error_text(done)


def test_errors_on_cuda_solutions_and_missing_tensors_state_the_next_step(data_set: Path) -> None:
    (data_set / "s.json").write_text(json.dumps(bench_case.solution(language="cuda")))
    words = ("new", f"definitions/gather/{bench_case.NAME}.json", "--yes", "--no-check")
    done = kopt(*words, "--solution", "s.json", cwd=data_set)
    assert "tvm-ffi, which kopt does not load" in error_text(done)
    (data_set / "w1.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "git lfs pull" in error_text(kopt(*words, cwd=data_set))
    (data_set / "w1.safetensors").unlink()
    assert "w1.safetensors" in error_text(kopt(*words, cwd=data_set))


def test_each_definition_of_a_data_set_gets_a_manifest(data_set: Path) -> None:
    path = data_set / "definitions" / "gather" / "double_d64.json"
    path.write_text(json.dumps(bench_case.definition(
        name="double_d64", constraints=None, reference="def run(table):\n    return table * 2\n",
        axes={"height": {"type": "var"}, "width": {"type": "const", "value": 64}},
        inputs={"table": {"shape": ["height", "width"], "dtype": "float32"}},
        outputs={"out": {"shape": ["height", "width"], "dtype": "float32"}})))
    done = kopt("new", str(data_set), "--each", "--no-check")
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[1:3]}
    assert "failed" in rows["double_d64.json"] and "--class" in rows["double_d64.json"]
    assert rows[f"{bench_case.NAME}.json"].split()[1] == "new"
    task = task_file.load(data_set / f"kopt_task/{bench_case.NAME}/task.yaml")
    assert task.adapter == f"kopt_task/{bench_case.NAME}/adapter.py:call"
