"""`kopt report --format` writes the formats of KernelBench, flashinfer-bench and tuning tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.split import specialise
from engine.split.languages.python_language import Python
from harness.formats import yaml_document
from harness.search.space import tuning_table
from tests.support import json_schema, repos
from tests.support.benchmarks import bench_case, bench_schemas
from tests.support.dashboards import export_case
from tests.support.programs.command_line import answer, error_text, kopt
from tests.support.searches import split_case

MODEL = "class Model:\n    pass\n\n\ndef get_inputs():\n    return []\n"
MODULE = {"kind": "kernel", "op": "m", "language": "python", "entry": "Model", "returns": True,
          "reference": "kopt_task/reference.py:reference", "adapter": "kopt_task/adapter.py:call",
          "args": [{"name": "x", "dtype": "float32", "shape": ["n"]}],
          "classes": [{"name": "full", "shape": {"n": 4}}]}


@pytest.fixture
def data_set(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    bench_case.write(folder)
    (folder / "solution.json").write_text(json.dumps(bench_case.solution()))
    repos.git(folder, "init", "-q")
    done = kopt("new", f"definitions/gather/{bench_case.NAME}.json", "--yes", "--no-check",
                "--solution", "solution.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    repos.git(folder, "add", "-A")
    repos.git(folder, "commit", "-q", "-m", "start")
    return folder


def test_flashinfer_export_is_a_solution_and_a_trace_for_each_class(
        data_set: Path, tmp_path: Path) -> None:
    export_case.finished(
        tmp_path / "w", data_set, "gather", "kopt_task/task.yaml",
        {f"solutions/{bench_case.NAME}/src/main.py": "def run(*values):\n    ...\n"},
        tuple(export_case.row(name, 10.0, 25.0) for name in (
            "bags2-picked5", "bags3-picked40", "bags4-picked90")))
    out = tmp_path / "out"
    done = kopt("report", "gather", "--format", "flashinfer", "--output", str(out),
                workspace=tmp_path / "w")
    assert done.returncode == 0, done.stderr
    [path] = (out / "solutions" / "kopt" / "gather" / bench_case.NAME).glob("*.json")
    solution = json.loads(path.read_text())
    assert json_schema.faults(solution, bench_schemas.SOLUTION) == []
    assert path.stem == solution["name"]
    assert solution["spec"]["entry_point"] == "src/main.py::run"
    assert solution["spec"]["destination_passing_style"] is True
    assert solution["sources"] == [{"path": "src/main.py",
                                    "content": "def run(*values):\n    ...\n"}]
    path = out / "traces" / "kopt" / "gather" / f"{bench_case.NAME}.jsonl"
    traces = [json.loads(line) for line in path.read_text().splitlines()]
    assert [json_schema.faults(trace, bench_schemas.TRACE) for trace in traces] == [[], [], []]
    assert [trace["workload"]["uuid"] for trace in traces] == ["uuid-0", "uuid-1", "uuid-3"]
    assert traces[0]["solution"] == solution["name"]
    assert traces[0]["evaluation"]["performance"] == {
        "latency_ms": 0.01, "reference_latency_ms": 0.025, "speedup_factor": 2.5}
    assert traces[0]["evaluation"]["environment"]["hardware"] == "Some_Card"
    assert "of the solution gather_sum_torch" in traces[0]["evaluation"]["log"]


def test_export_without_a_result_says_what_is_missing(data_set: Path, tmp_path: Path) -> None:
    export_case.finished(tmp_path / "w", data_set, "gather", "kopt_task/task.yaml", {}, ())
    words = ("report", "gather", "--output", str(tmp_path / "out"))
    done = kopt(*words, "--format", "flashinfer", workspace=tmp_path / "w")
    assert done.returncode == 1 and "has kept nothing yet" in error_text(done)
    done = kopt(*words, "--format", "kernelbench", workspace=tmp_path / "w")
    assert done.returncode == 1 and "was not made from a PyTorch module" in error_text(done)
    assert not (tmp_path / "out").exists()


def test_batch_of_kernelbench_gets_solution_files_and_one_fast_p_table(tmp_path: Path) -> None:
    level, workspace = tmp_path / "level1", tmp_path / "w"
    files = {}
    names = ("1_Faster", "2_Patched", "3_Same", "4_Unrun")
    for name in names:
        task = f"kopt_task/{name}/task.yaml"
        files[f"{name}.py"] = MODEL
        files[task] = yaml_document.dump({**MODULE, "source": f"{name}.py"})
        files[f"kopt_task/{name}/manifest.yaml"] = yaml_document.dump({
            "target_op": "m", "project": "../..", "target": {"kind": "kernel", "task": task}})
    repos.project(level, files)
    new = f"{MODEL}\n\nclass ModelNew(Model):\n    pass\n"
    for name, text, speedup in (("1_Faster", new, 2.5), ("2_Patched", MODEL + "# fast\n", 0.9)):
        export_case.finished(workspace, level, name, f"kopt_task/{name}/task.yaml",
                             {f"{name}.py": text}, (export_case.row("full", 10.0, 25.0),),
                             speedup=speedup, speedup_low=0.8, speedup_high=2.6)
    export_case.finished(workspace, level, "3_Same", "kopt_task/3_Same/task.yaml", {}, ())
    out = tmp_path / "out"
    done = kopt("report", str(level), "--each", "--format", "kernelbench", "--output", str(out),
                workspace=workspace)
    assert done.returncode == 0, done.stderr
    table = json.loads((out / "fast_p.json").read_text())
    assert table["fast_p"] == {"0.0": 0.5, "0.5": 0.5, "0.8": 0.5, "1.0": 0.25, "1.5": 0.25,
                               "2.0": 0.25}
    assert (table["total_count"], table["correct_count"]) == (4, 2)
    assert table["geo_mean_speedup"] == pytest.approx(1.5)
    assert [each["why"] for each in table["problems"]] == [
        "", "", "nothing was kept", "no campaign ran on it"]
    assert "fast_2" in done.stdout and "2.50x" in done.stdout
    first = (out / "level_1_problem_1_sample_0_kernel.py").read_text()
    assert first == new
    second = (out / "level_1_problem_2_sample_0_kernel.py").read_text()
    assert second.endswith("\n\n\nModelNew = Model\n")
    one = answer(kopt("report", "1_Faster", "--format", "kernelbench", "--json", "--output",
                      str(out), workspace=workspace))
    assert one["fast_p"]["1.0"] == 1.0


SUMS = """import math

TILE = 32  # kopt: knob TILE in [4, 32, 256]
NUM_WARPS = 4  # kopt: knob NUM_WARPS in [4, 8]


def part(x, tile):
    return math.fsum(x[:tile])


def total(x, M):
    return math.fsum(part(x[i:], TILE) for i in range(0, M, TILE)) * NUM_WARPS
"""


@pytest.mark.parametrize(("format", "names"), [
    ("triton-config", ["short", "long"]), ("vllm", ["8", "2048"])])
def test_kept_knobs_of_each_class_are_written_as_a_tuning_table(
        format: str, names: list[str], tmp_path: Path) -> None:
    task = {**MODULE, "source": "sums.py", "entry": "total", "adapter": None, "classes": [
        {"name": "short", "shape": {"M": 8}}, {"name": "long", "shape": {"M": 2048}}]}
    repos.project(tmp_path / "p", {"task.yaml": yaml_document.dump(task), "sums.py": SUMS,
                                   "t.json": '[{"tile": 4, "num_warps": 8}]'})
    kept = specialise.split(SUMS, [split_case.group("M >= 1024", {"M": 2048}, TILE=256)],
                            {"M": "M"}, start={"TILE": 32, "NUM_WARPS": 4}, language=Python())
    export_case.finished(tmp_path / "w", tmp_path / "p", "sums", "task.yaml", {"sums.py": kept},
                         (), target_knobs="t.json")
    table = json.loads(kopt("report", "sums", "--format", format, workspace=tmp_path / "w").stdout)
    assert table == {names[0]: {"tile": 32, "num_warps": 4},
                     names[1]: {"tile": 256, "num_warps": 4}}
    tuning_table.parse(json.dumps(table), "it is one again")
