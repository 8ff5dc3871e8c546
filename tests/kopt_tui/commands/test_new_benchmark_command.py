"""Guards `kopt new` for a project with its own benchmark: inference, confirmation, the run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from engine.discovery.classes import proposal, sample_runs
from engine.discovery.new import draft_command
from engine.discovery.project import benchmark, columns, kernel_source, sources
from engine.manifest import load
from harness.benchmark.runs.result_table import ResultTable
from harness.benchmark.runs.run_pairs import BrokenIncumbent
from harness.benchmark.spec.command_target import BenchmarkMode, CheckColumn, CommandTarget, Metric
from harness.devices import inventory
from harness.errors import InputError
from kopt_tui.main import main
from tests.support import repos
from tests.support.command_line import answer, converse, kopt
from tests.support.paths import ROOT

KERNEL = "def decode(block_size, mtp, context):\n    # kopt: knob TILE in [16, 32]\n" \
         "    return context * (3 if block_size == 1024 and mtp == 1 else 1) * 1e-3\n"
BENCH = '''\
"""Writes pa.csv."""
import csv
import random
from kernels.pa_ps import decode

rows = []
for block_size in (16, 1024):
    for mtp in (1, 2):
        for context in (512, 1024, 4096, 16384):
            us = decode(block_size, mtp, context) * random.uniform(0.99, 1.01)
            rows.append({"block_size": block_size, "mtp": mtp, "context": context, "dtype": "fp8",
                         "err_torch": 0, "us_torch": f"{context * 2e-3:.4f}", "err_pa_ps": 0,
                         "us_pa_ps": f"{us:.5f}"})
with open("pa.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)
'''
FILES = {"tests/bench_pa.py": BENCH, "tests/kernels/pa_ps.py": KERNEL,
         "tests/kernels/__init__.py": "", "notes.py": "print('no benchmark')\n",
         "tests/test_pa.py": "import sys\nsys.path.insert(0, 'tests')\nfrom kernels import pa_ps\n"
                             "def test_decode():\n    assert pa_ps.decode(16, 1, 1000) == 1\n"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return repos.project(tmp_path / "pa", FILES)


def test_parameters_are_inferred_and_written_without_questions(project: Path) -> None:
    done = kopt("new", "--project", str(project), "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    shown = {line.split()[0]: line for line in done.stdout.splitlines() if line.startswith("  ")}
    assert "python tests/bench_pa.py" in shown["benchmark_command"]
    assert "of pa ps; the table also has torch" in shown["metrics"]
    assert "found by the baseline" in shown["configs"]
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
    assert value["why"].startswith("block_size (") and "mtp (" in value["why"]
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
    (("--edit", ""), "edit could not be inferred (use --edit kernel.py)"),
    (("--check", ""), "check could not be inferred (use --check 'err == 0')"),
    (("--metrics", "us_pa_ps, us_pa_ps"), "'us_pa_ps' is there twice"),
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


def test_person_confirms_edits_and_allows_a_run(project: Path) -> None:
    answers = {"NAME=VALUE changes": "device=gpu:99", "device             gpu:99": "colour=red",
               "there is no parameter": "device=cpu", "device             cpu": "",
               "once, in a copy": "y", "config classes:": "configs=mtp",
               "configs            mtp": ""}
    status, screen = converse(["new", "--project", str(project)], answers)
    assert status == 0, screen
    assert "block_size=1024 mtp=1: 4 rows" in screen
    written = load.load(project / "manifest.yaml")
    assert (written.target.configs, written.gpu.device) == (("mtp",), "cpu")


def test_unexpected_table_asks_for_a_check(project: Path) -> None:
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


def test_needed_parameter_is_asked_for_until_it_is_set(project: Path) -> None:
    (project / "tests" / "kernels" / "pa_ps.py").unlink()
    answers = {"NAME=VALUE changes": "", "edit is still missing": "edit=tests/k.py",
               "edit               tests/k.py": "", "once, in a copy": "no"}
    status, screen = converse(["new", "--project", str(project)], answers)
    assert status == 0, screen
    assert load.load(project / "manifest.yaml").edit == ("tests/k.py",)


def test_project_with_a_task_file_is_a_kernel(project: Path) -> None:
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
    assert made.target.check == "check"  # which passes for PASS; a run would show the word


@pytest.mark.parametrize(("names", "check", "metrics"), [
    (("block_size", "err_flydsl_ps", "us_flydsl_ps", "err_gluon", "us_gluon"),
     "err_flydsl_ps == 0", ("us_flydsl_ps",)),
    (("us_torch", "err_torch", "us_mine", "err_mine"), "err_mine == 0", ("us_mine",)),
    (("Case", "Check", "Forward Time (ms)", "Forward TFLOPS", "Backward Time (ms)",
      "Backward TFLOPS"), "Check", ("Forward Time (ms)", "Backward Time (ms)")),
    (("M", "Check", "Forward TFLOPS", "Backward TFLOPS"), "Check",
     ("Forward TFLOPS", "Backward TFLOPS")),
    (("n", "ok", "min_us", "median_us", "max_us"), "ok", ("median_us",)),
    (("n", "ok", "Forward GB/s"), "ok", ("Forward GB/s",)),
    (("n", "m"), "", ()),
])
def test_checks_and_metrics_are_inferred_from_column_names(
        names: tuple[str, ...], check: str, metrics: tuple[str, ...]) -> None:
    """Times rather than rates, forward and backward, of the implementation that is checked."""
    found = columns.guess_columns(names)
    assert (found.check, found.metrics) == (check, metrics)


@pytest.mark.parametrize(("cells", "check"), [
    (["0", "0.0"], "err == 0"), (["0.1", "0.003"], "err"), (["0", "0.5"], "err"),
])
def test_nonzero_error_needs_a_threshold(cells: list[str],
                                                                   check: str) -> None:
    found = columns.guess_columns(["err", "us"], {"err": cells, "us": ["1", "2"]})
    assert found.check == check


@pytest.mark.parametrize(("cells", "check"), [
    (["PASS", "PASS"], "ok == PASS"), (["1", "1"], "ok == 1"), (["True", "True"], "ok == True"),
    (["PASS", "FAIL"], "ok"),
])
def test_word_in_all_rows_is_the_check(cells: list[str], check: str) -> None:
    assert (
        columns.guess_columns(["ok", "us"], {"ok": cells, "us": ["1", "2"]}).check == check
    )


def test_column_without_times_is_not_a_metric() -> None:
    cells = {"us": ["n/a", "2"], "ms": ["1", "2"], "ok": ["PASS", "PASS"]}
    assert columns.guess_columns(["us", "ms", "ok"], cells).metrics == ("ms",)


@pytest.mark.parametrize(("source", "csv", "columns"), [
    ('open("a.csv", "w"); import csv; csv.writer', "a.csv", ()),
    ('import pandas; pandas.DataFrame([dict(m=1, us=2)]).to_csv("out/b.csv")', "out/b.csv",
     ("m", "us")),
    ('p.add_argument("-o", default="c.csv"); csv.DictWriter(f, ["m", "us_x", "err"])', "c.csv",
     ("m", "us_x", "err")),
    ('open("/tmp/a.csv", "w")', "/tmp/a.csv", ()),
    ("def broken(:", "", ()),
])
def test_output_is_inferred_from_the_script(source: str, csv: str, columns: tuple[str, ...],
                                      tmp_path: Path) -> None:
    found = benchmark.read_benchmark(tmp_path, "bench.py", source)
    assert (found.csv, found.columns) == (csv, columns)


def test_columns_are_inferred_from_an_earlier_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"Forward Time (ms)",Check\n1,PASS\n')
    found = benchmark.read_benchmark(tmp_path, "bench.py", 'open("a.csv", "w")')
    assert found.columns == ("Forward Time (ms)", "Check")


@pytest.mark.parametrize(("files", "build"), [
    ({"k.c": "int f(void) { return 1; }", "bench.py": 'ctypes.CDLL("./k.so")'},
     "cc -O2 -shared -fPIC -o k.so k.c -lm"),
    ({"k.c": "int f(void) { return 1; }", "bench.py": 'ctypes.CDLL("./libk.so")',
      "README.md": "Build it:\n\n    gcc -O3 -shared -o libk.so k.c\n"},
     "gcc -O3 -shared -o libk.so k.c"),
    ({"k.c": "int f(void) { return 1; }", "Makefile": "k.so: k.c\n",
      "bench.py": 'ctypes.CDLL("k.so")'}, "make"),
    ({"k.c": "int f(void) { return 1; }",
      "bench.py": 'subprocess.run(["cc", "k.c"]); ctypes.CDLL("k.so")'}, ""),
    ({"bench.py": "import triton"}, ""),
])
def test_build_is_inferred_from_what_the_benchmark_loads(files: dict[str, str], build: str,
                                                     tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert kernel_source.find_kernel(tmp_path, "bench.py").build == build


def test_command_without_a_script_uses_the_likeliest_script(
        project: Path) -> None:
    known = draft_command.infer_parameters(project, {"benchmark_command": "make bench"})
    assert known["benchmark_command"].value == "make bench"
    assert (known["csv"].value, known["edit"].value) == ("pa.csv", "tests/kernels/pa_ps.py")
    assert known["csv"].origin == "written by tests/bench_pa.py"


def test_given_parameter_overrides_what_a_run_shows(project: Path) -> None:
    known = draft_command.infer_parameters(project, {"check": "err_x == 0"})
    table = ResultTable(
        columns=("n", "ok", "ms"), rows=(("1", "PASS", "2.5"), ("2", "PASS", "3.5"))
    )
    seen = draft_command.with_table(known, table, "")
    assert (seen["check"].value, seen["metrics"].value) == ("err_x == 0", "ms")
    assert seen["primary_metric"].value == "ms"
    assert (
        draft_command.with_table(draft_command.infer_parameters(project, {}), table, "")[
            "check"
        ].value
        == "ok == PASS"
    )


@pytest.mark.parametrize(("files", "found"), [
    ({"bench.py": "import k\n", "k.py": "x = 1\n"}, ("k.py",)),
    ({"bench.py": "import k, tools\n", "k.py": "import triton\n@triton.jit\ndef f(): pass\n",
      "tools.py": ""}, ("k.py",)),
    ({"tests/bench_pa.py": "from ops import run\n", "ops/__init__.py": "from ops.pa import run\n",
      "ops/pa.py": "import triton.language\n", "ops/gemm.py": "import triton.language\n"},
     ("ops/pa.py",)),
    ({"bench_pa.py": "import pa, norm\n", "pa.py": "import flydsl\n", "norm.py": "import flydsl\n"},
     ("pa.py",)),
    ({"bench.py": "import a, b\n", "a.py": "import triton.language\n# kopt: knob A in [1, 2]\n",
      "b.py": "import triton.language\n"}, ("a.py",)),
    ({"bench.py": "import .broken"}, ()),
])
def test_kernel_is_inferred_from_the_imports_of_the_benchmark(
        files: dict[str, str], found: tuple[str, ...], tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    script = next(name for name in files if "bench" in name)
    assert kernel_source.find_kernel(tmp_path, script).files == found


@pytest.mark.parametrize(("style", "tool", "file", "command"), [
    (".clang-format", "clang-format", "k.c", "clang-format -i k.c"),
    ("pyproject.toml", "black", "k.py", "black -q k.py"),
    ("pyproject.toml", "ruff", "k.py", ""), (".clang-format", "clang-format", "k.py", ""),
    (".clang-format", "", "k.c", ""), ("", "clang-format", "k.c", "")])
def test_format_command_is_inferred_if_the_tool_is_installed(
        style: str, tool: str, file: str, command: str, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    if style:
        (tmp_path / style).write_text("[tool.black]\n")
    (tmp_path / "bin").mkdir()
    if tool:
        shutil.copy("/bin/true", tmp_path / "bin" / tool)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert kernel_source.format_command(tmp_path, [file]) == command


@pytest.mark.slow
def test_run_without_a_table_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "bench.py").write_text("raise SystemExit('no card')\n")
    mode = BenchmarkMode(name="full", command="python bench.py", csv="a.csv")
    with pytest.raises(InputError, match="the benchmark exited with 1: no card"):
        sample_runs.run_once(tmp_path, mode, device="cpu")
    with pytest.raises(InputError, match="the benchmark does not build: exited with 1"):
        sample_runs.run_once(tmp_path, mode, build="false", device="cpu")
    with pytest.raises(InputError, match=r"the benchmark wrote no a\.csv"):
        sample_runs.run_once(tmp_path, replace(mode, command="true"), device="cpu")
    assert sources.project_files(tmp_path) == [tmp_path / "bench.py"]


def test_baseline_uses_several_runs_of_a_checkout(project: Path, tmp_path: Path) -> None:
    target = CommandTarget(op="pa", command="python tests/bench_pa.py", csv="pa.csv",
                           build_command="touch built", metrics=(Metric(name="us_pa_ps"),),
                           check=CheckColumn(column="err_pa_ps", rule="== 0"))
    cpu = inventory.find("cpu")
    runs = sample_runs.run_benchmark(target, project, cpu, tmp_path / "scratch", runs=2)
    assert [len(run.costs) for run in runs] == [16, 16] and runs[0].costs != runs[1].costs
    found = proposal.propose_classes(target, runs, BENCH)
    assert found.strata.configs == ("block_size", "mtp")
    assert found.strata.keys == ("block_size", "mtp", "context")
    assert not (project / "built").exists() and not (tmp_path / "scratch" / "side").exists()
    with pytest.raises(BrokenIncumbent, match="the incumbent's own benchmark: does not build"):
        sample_runs.run_benchmark(
            replace(target, build_command="false"), project, cpu, tmp_path / "scratch"
        )
