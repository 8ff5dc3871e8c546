"""`kopt new` infers a benchmark's parameters from its script, its table and its build."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from engine.discovery.classes import proposal, sample_runs
from engine.discovery.new import draft_command
from engine.discovery.project import benchmark, columns, kernel_source, sources
from engine.manifest.load import load
from harness.benchmark.runs.result_table import ResultTable
from harness.benchmark.runs.run_pairs import BrokenIncumbent
from harness.benchmark.spec.command_target import BenchmarkMode, CheckColumn, CommandTarget, Metric
from harness.devices import inventory
from harness.errors import InputError
from tests.support.benchmarks.new_benchmark_case import BENCH
from tests.support.programs.command_line import kopt


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
    """Metrics are times if there are any, else rates, of the implementation that is checked."""
    found = columns.guess_columns(names)
    assert (found.check, found.metrics) == (check, metrics)


@pytest.mark.parametrize(("cells", "check"), [
    (["0", "0.0"], "err == 0"), (["0.1", "0.003"], "err"), (["0", "0.5"], "err"),
    (["1", "1"], "err"),
])
def test_nonzero_error_needs_a_threshold(cells: list[str], check: str) -> None:
    found = columns.guess_columns(["err", "us"], {"err": cells, "us": ["1", "2"]})
    assert found.check == check


@pytest.mark.parametrize(("cells", "check"), [
    (["PASS", "PASS"], "ok == PASS"), (["1", "1"], "ok == 1"), (["True", "True"], "ok == True"),
    (["PASS", "FAIL"], "ok"), (["FAIL", "FAIL"], "ok"),
])
def test_word_for_correct_in_all_rows_becomes_the_check(cells: list[str], check: str) -> None:
    assert (
        columns.guess_columns(["ok", "us"], {"ok": cells, "us": ["1", "2"]}).check == check
    )


@pytest.mark.parametrize(("err", "check", "said"), [
    ("0", [], "a row is correct if err_pa_ps == 0 (to allow other rounding: "
     "--check 'err_pa_ps <= 1e-6'); it is measured by us_pa_ps\n"),
    ("0", ["--check", "err_pa_ps <= 1e-3"],
     "a row is correct if err_pa_ps <= 1e-3; it is measured by"),
    ("'no'", [], "(set what counts as correct: --check 'err_pa_ps == WORD')")])
def test_run_prints_the_check_and_how_to_change_it(
        err: str, check: list[str], said: str, project: Path) -> None:
    bench = project / "tests" / "bench_pa.py"
    bench.write_text(bench.read_text().replace('"err_pa_ps": 0', f'"err_pa_ps": {err}'))
    done = kopt("new", "--project", str(project), "--yes", "--run", "--device", "cpu", *check)
    assert said in done.stdout + done.stderr


@pytest.mark.parametrize(("edit", "said"), [
    ("src/*.c", "no knobs: a campaign tries 1 built-in change (relaxed rounding in the whole"),
    ("src/*", "edit matches several files: a campaign tries 1 built-in change of src/a.c; to "),
    ("src/*.[hx]", "edit matches several files, to which no built-in change applies: a campaign "
                   "will try nothing; to search knobs, name one file with --edit")])
def test_new_prints_which_changes_a_campaign_will_make(
        edit: str, said: str, project: Path) -> None:
    (project / "src").mkdir()
    (project / "src" / "a.c").write_text("float twice(float x) { return x + x; }\n")
    (project / "src" / "a.h").write_text("float twice(float x);\n")
    (project / "src" / "a.x").write_text("a list\n")
    done = kopt("new", "--project", str(project), "--yes", "--edit", edit)
    assert done.returncode == 0 and said in done.stdout, done.stdout
    assert load(project / "manifest.yaml").target_lang == "c"


def test_column_of_pass_or_fail_is_preferred_to_one_of_errors() -> None:
    cells = {"us": ["1", "2"], "err": ["1e-7", "3e-7"], "ok": ["1", "1"]}
    assert columns.guess_columns(["us", "err", "ok"], cells).check == "ok == 1"
    assert columns.guess_columns(["us", "err", "ok"]).check == "ok"


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
    ('out = [dict(m=1, us=2)]\nwith open("r.json", "w") as f: json.dump(out, f)', "r.json",
     ("m", "us")),
    ('Path("r.json").write_text(json.dumps([{"m": 1, "ms": 2}]))', "r.json", ("m", "ms")),
    ('OUT = "r.json"; open(OUT, "w").write(json.dumps(rows))', "r.json", ()),
    ('json.dump(seed, open("seed.json", "w")); rows.to_csv("a.csv")', "a.csv", ()),
    ('json.dump(seed, open("seed.json", "w")); o(default="a.csv"); csv.writer(f)', "a.csv", ()),
    ('json.load(open("shapes.json"))', "", ()),
])
def test_output_is_inferred_from_the_script(source: str, csv: str, columns: tuple[str, ...],
                                            tmp_path: Path) -> None:
    found = benchmark.read_benchmark(tmp_path, "bench.py", source)
    assert (found.csv, found.columns) == (csv, columns)


def test_columns_are_inferred_from_an_earlier_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"Forward Time (ms)",Check\n1,PASS\n')
    found = benchmark.read_benchmark(tmp_path, "bench.py", 'open("a.csv", "w")')
    assert found.columns == ("Forward Time (ms)", "Check")


def test_columns_are_inferred_from_an_earlier_json_table(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"when": "now", "rows": [{"m": 1, "us": 2.5}]}')
    found = benchmark.read_benchmark(tmp_path, "bench.py",
                                     'Path("a.json").write_text(json.dumps(value))')
    assert found.columns == ("m", "us")


def test_script_that_writes_times_as_json_is_the_benchmark_and_another_is_not(
        tmp_path: Path) -> None:
    (tmp_path / "k.c").write_text("float twice(float x) { return x + x; }\n")
    (tmp_path / "test_config.py").write_text('json.dump({"size": 3}, open("config.json", "w"))\n')
    assert benchmark.find_benchmarks(tmp_path) == []
    (tmp_path / "measure.py").write_text(
        'out = [dict(rows=1, us=t(), ok="PASS")]\njson.dump(out, open("results.json", "w"))\n')
    assert [each.script for each in benchmark.find_benchmarks(tmp_path)] == ["measure.py"]
    done = kopt("new", "--project", str(tmp_path), "--yes", "--edit", "k.c")
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "manifest.yaml").target.csv == "results.json"


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


def test_parameters_of_a_command_without_a_script_come_from_the_likeliest_script(
        project: Path) -> None:
    known = draft_command.infer_parameters(project, {"benchmark_command": "make bench"})
    assert known["benchmark_command"].value == "make bench"
    assert (known["csv"].value, known["edit"].value) == ("pa.csv", "tests/kernels/pa_ps.py")
    assert known["csv"].origin == "written by tests/bench_pa.py"


def test_given_parameter_overrides_the_inferred_one(project: Path) -> None:
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
def test_run_without_a_table_is_a_one_line_error(tmp_path: Path) -> None:
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
