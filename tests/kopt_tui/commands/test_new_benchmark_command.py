"""Tests `kopt new` for a project with its own benchmark: inference, questions, one run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.discovery.new import draft_command
from engine.manifest import load
from harness.isolation import device_lock
from kopt_tui.main import main
from tests.support import repos
from tests.support.paths import ROOT
from tests.support.programs.command_line import answer, converse, kopt


def test_parameters_are_inferred_and_written_without_questions(project: Path) -> None:
    done = kopt("new", "--project", str(project), "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    shown = {line.split()[0]: line for line in done.stdout.splitlines() if line.startswith("  ")}
    assert "python tests/bench_pa.py" in shown["benchmark_command"]
    assert "of pa ps; the table also has torch" in shown["metrics"]
    assert "configs (found by the baseline), ignore" in shown["not"]
    written = load.load(project / "manifest.yaml")
    assert (written.target_op, written.edit) == ("pa", ("tests/kernels/pa_ps.py",))
    assert (written.target.kind, written.target.csv) == ("command", "pa.csv")
    assert (written.target.check, written.target.metrics) == ("err_pa_ps == 0", ("us_pa_ps",))
    assert written.test_command == "python -m pytest -q tests/test_pa.py"
    assert (written.primary_metric, written.target_lang) == ("us_pa_ps", "python")
    assert not (project / "pa.csv").exists(), "nothing was run"


def test_one_run_of_the_benchmark_finds_the_classes(project: Path) -> None:
    value = answer(kopt("new", "--project", str(project), "--yes", "--run", "--json",
                        "--device", "cpu"))
    assert [row_class["name"] for row_class in value["classes"]] == [
        "block_size=16 mtp=1", "block_size=16 mtp=2", "block_size=1024 mtp=1",
        "block_size=1024 mtp=2"]
    assert value["why"].startswith("16 rows in 4 classes by block_size and mtp; ")
    assert [row_class["share"] for row_class in value["classes"]] == [0.25] * 4, "as in the score"
    assert value["parameters"]["configs"] == {"value": "block_size, mtp",
                                              "from": "found in the table of a run"}
    written = load.load(project / "manifest.yaml")
    assert written.target.configs == ("block_size", "mtp")
    assert not (project / "pa.csv").exists(), "it runs in a copy"


def test_flags_set_any_parameter(project: Path) -> None:
    assert main(["new", "--project", str(project), "--yes", "--benchmark",
                 "python tests/bench_pa.py --all", "--metrics", "us_torch", "--check",
                 "err_torch <= 1e-3", "--edit", "tests/*.py", "--set", "performance_target=1.5x",
                 "--set", "git_commit=false", "--set", "configs=mtp, context <= 1024", "--rounds",
                 "5", "--approval", "auto", "--device", "cpu", "--backends", "inbox"]) == 0
    written = load.load(project / "manifest.yaml")
    assert written.benchmark_command == "python tests/bench_pa.py --all"
    assert (written.target.check, written.target.metrics) == ("err_torch <= 1e-3", ("us_torch",))
    assert written.target.configs == ("mtp", "context <= 1024")
    assert (written.performance_target, written.git_commit, written.max_iterations,
            written.approval) == ("1.5x", False, 5, "auto")
    assert (written.edit, written.pool.backends) == (("tests/*.py",), ("inbox",))


@pytest.mark.parametrize(("words", "part"), [
    (("--set", "colour=red"), "there is no parameter 'colour'"),
    (("--set", "benchmark_comand=x"), "did you mean 'benchmark_command'?"),
    (("--set", "red"), "cannot read --set red"),
    (("--edit", ""), "edit could not be inferred (use --edit 'src/*.c')"),
    (("--check", ""), "check could not be inferred (use --run, which runs"),
    (("--metrics", "us_pa_ps, us_pa_ps"), "'us_pa_ps' is declared twice"),
    (("--rounds", "500"), "max_iterations: expected a whole number of at most 119"),
    (("--backends", "inbox,magic"), "pool.backends: unknown backend 'magic'"),
    (("--check", "dtype == fp16", "--run"),
     "row 1 of pa.csv: dtype is 'fp8', expected == fp16 (set what counts as correct: --check"),
])
def test_wrong_values_are_reported_before_anything_is_written(
        words: tuple[str, ...], part: str, project: Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["new", str(project / "m.yaml"), "--project", str(project), "--device", "cpu",
                 "--yes", *words])
    printed = capsys.readouterr().err
    assert code == 2 and part in printed, printed
    assert not (project / "m.yaml").exists()


def test_person_edits_and_confirms_parameters_and_allows_a_run(project: Path) -> None:
    answers = {"NAME=VALUE changes": "device=gpu:99", "device             gpu:99": "colour=red",
               "there is no parameter": "device=cpu", "device             cpu": "",
               "once, in a copy": "y", "config classes:": "configs=mtp",
               "configs            mtp": ""}
    status, screen = converse(["new", "--project", str(project)], answers)
    assert status == 0, screen
    assert "block_size=1024 mtp=1: 4 rows" in screen
    written = load.load(project / "manifest.yaml")
    assert (written.target.configs, written.gpu.device) == (("mtp",), "cpu")


def test_check_that_the_table_does_not_meet_is_asked_for_again(project: Path) -> None:
    answers = {"NAME=VALUE changes": "check=dtype == fp16", "check              dtype == fp16": "",
               "once, in a copy": "yes", "dtype is 'fp8', expected == fp16": "check=dtype == fp8",
               "check              dtype == fp8": "", "config classes:": ""}
    status, screen = converse(["new", "--project", str(project), "--device", "cpu"], answers)
    assert status == 0, screen
    assert load.load(project / "manifest.yaml").target.check == "dtype == fp8"


def test_person_may_forbid_the_run(project: Path) -> None:
    answers = {"NAME=VALUE changes": "", "once, in a copy": "n"}
    status, screen = converse(["new", "--project", str(project)], answers)
    assert status == 0 and "config classes:" not in screen
    assert load.load(project / "manifest.yaml").target.configs == ()


def test_file_that_the_command_redirects_its_output_to_is_the_table(tmp_path: Path) -> None:
    (tmp_path / "k.c").write_text("void f(float *x, int n) { x[n - 1] = 0; }\n")
    words = ["--check", "err == 0", "--metrics", "us", "--edit", "k.c", "--device", "cpu"]
    for command, csv in (("./bench > out.csv", "out.csv"), ("./bench 2> log.txt", "")):
        done = kopt("new", "--project", str(tmp_path), "--yes", "--benchmark", command, *words)
        assert done.returncode == (0 if csv else 2), done.stderr
        assert not csv or load.load(tmp_path / "manifest.yaml").target.csv == csv
        (tmp_path / "manifest.yaml").unlink(missing_ok=True)


def test_run_names_the_process_that_it_waits_for(project: Path) -> None:
    held = device_lock.acquire("cpu", timeout_s=60)
    asking = subprocess.Popen(
        [sys.executable, "-m", "kopt_tui.main", "new", "--project", str(project), "--device", "cpu",
         "--yes", "--run"], cwd=ROOT, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert asking.stderr is not None
    line = asking.stderr.readline()
    held.release()
    asking.communicate(timeout=120)
    assert line == f"running the benchmark; waiting while process {os.getpid()} measures on " \
        "cpu\n"
    assert asking.returncode == 0


BENCH_OF_SHELL = """\
echo op,n,GB/s,{result} > out.csv
for n in 10 200 3000; do echo copy,$n,$n.5,0; echo scale,$n,$n.7,0; done >> out.csv
"""


@pytest.mark.parametrize("result", ["max_err", "off_by"])
def test_run_shows_the_columns_when_it_asks_for_a_check(result: str, tmp_path: Path) -> None:
    (tmp_path / "bench.sh").write_text(BENCH_OF_SHELL.format(result=result))
    (tmp_path / "k.c").write_text("void f(float *x, int n) { x[n - 1] = 0; }\n")
    answers = {"NAME=VALUE changes": "", "csv is still missing": "csv=out.csv",
               "csv                out.csv": "", "edit is still missing": "edit=k.c",
               "edit               k.c": "", "once, in a copy": "y"}
    if result == "off_by":
        answers |= {"the table has the columns op, n, GB/s, off_by;": "check=off_by == 0",
                    "check              off_by == 0": ""}
    status, screen = converse(["new", "--project", str(tmp_path), "--device", "cpu",
                               "--benchmark", "sh bench.sh"], answers | {"config classes:": ""})
    assert status == 0, screen
    written = load.load(tmp_path / "manifest.yaml").target
    assert written.check == f"{result} == 0" and written.metrics == ("GB/s",)


@pytest.mark.parametrize(("table", "why"), [
    ("op,n,ms\nadd,1,2\nadd,2,3\n", "no column of out.csv says whether a row's result is correct: "
     "it has op, n, ms (let the benchmark write one"),
    ("op,n,elapsed,err\nadd,1,2,0\nadd,2,3,0\n", "no column of out.csv is a time or a rate with "
     "its unit in its name: it has op, n, elapsed, err (name it like time_ms"),
    ("op    n   ms\nadd   1    2\n", "out.csv has a single column, 'op n ms' (let the benchmark "
     "separate the cells of a row by commas)"),
    ("op,n,ms,err\n", "out.csv has a header and no rows"), ("", "out.csv is empty")])
def test_run_whose_table_lacks_something_says_what_it_has(
        table: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "table.txt").write_text(table)
    (tmp_path / "k.c").write_text("void f(float *x, int n) { x[n - 1] = 0; }\n")
    assert main(["new", "--project", str(tmp_path), "--yes", "--run", "--benchmark",
                 "cp table.txt out.csv", "--csv", "out.csv", "--edit", "k.c", "--device",
                 "cpu"]) == 2
    assert why in capsys.readouterr().err


PACKAGE = {
    "geo/__init__.py": "from .dist import far\n",
    "geo/dist.py": "def far(a):\n    return a * 2\n",
    "benchmark.py": "import argparse, time\nfrom geo import far\n"
                    "parser = argparse.ArgumentParser()\nparser.add_argument('--out')\n"
                    "print('ms', time.perf_counter(), far(2), file=open(parser.parse_args().out, "
                    "'w'))\n",
    "tests/test_other.py": "class TestX:\n    def __init__(self): pass\n",
    "tests/test_far.py": "from geo import far\n\n\ndef test_far():\n    assert far(1) == 2\n",
}


def test_benchmark_is_found_by_its_name_and_tests_by_their_package(tmp_path: Path) -> None:
    project = repos.project(tmp_path / "p", PACKAGE)
    known = draft_command.infer_parameters(project, {})
    assert (known["benchmark_command"].value, known["benchmark_command"].origin) == (
        "python benchmark.py", "by its name")
    assert known["edit"].value == "geo/dist.py, geo/__init__.py", "the first one may get knobs"
    assert known["test_command"].value == "python -m pytest -q tests/test_far.py"
    assert draft_command.missing_parameter(known) == "csv", "only a person knows it"


def test_test_is_found_by_the_name_of_the_file_that_it_tests(tmp_path: Path) -> None:
    files = {**PACKAGE, "tests/test_far.py": "import geo_data\n",
             "tests/test_dist.py": "def test_it():\n    pass\n"}
    known = draft_command.infer_parameters(repos.project(tmp_path / "p", files), {})
    assert known["test_command"].value == "python -m pytest -q tests/test_dist.py"


def test_missing_parameter_is_asked_for(project: Path) -> None:
    (project / "tests" / "kernels" / "pa_ps.py").unlink()
    answers = {"NAME=VALUE changes": "", "edit is still missing": "edit=tests/k.py",
               "edit               tests/k.py": "", "once, in a copy": "no"}
    status, screen = converse(["new", "--project", str(project)], answers)
    assert status == 0, screen
    assert load.load(project / "manifest.yaml").edit == ("tests/k.py",)


def test_project_with_a_task_file_gets_a_kernel_target(project: Path) -> None:
    example = ROOT / "examples" / "rmsnorm_c"
    for name in ("task.yaml", "rmsnorm.c", "reference.py"):
        shutil.copy(example / name, project)
    assert main(["new", "--project", str(project), "--yes"]) == 0
    assert load.load(project / "manifest.yaml").target.kind == "kernel"


def test_example_manifest_is_inferred(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "command_c", tmp_path / "c")
    original = load.load(tmp_path / "c" / "manifest.yaml")
    known = draft_command.infer_parameters(tmp_path / "c", {})
    made = draft_command.make_manifest(known, ".")
    for name in ("target_op", "target_lang", "benchmark_command", "quick_command", "build_command",
                 "edit", "gpu"):
        assert getattr(made, name) == getattr(original, name), name
    assert (made.target.csv, made.target.metrics) == (original.target.csv, original.target.metrics)
    assert made.target.check == "check"  # a run would add the word PASS
