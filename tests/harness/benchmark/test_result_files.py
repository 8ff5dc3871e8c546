"""Reading a benchmark's result file, and the manifest's forms of a command target."""

from __future__ import annotations

import venv
from pathlib import Path
from typing import Any

import pytest

from engine.manifest import benchmark_target
from engine.manifest.load import dump, parse
from engine.manifest.schema import Manifest
from harness.benchmark.runs import result_table
from harness.benchmark.runs.result_table import BenchmarkFault
from harness.benchmark.spec.command_target import CheckColumn, CommandTarget, Metric
from harness.child import read_results as child
from harness.errors import EnvironmentFault, InputError
from harness.formats import yaml_document
from harness.formats.json_codec import from_json, to_json
from harness.requests import ReportedRequest, Request
from harness.settings import Settings, Trees
from tests.support.benchmarks.benchmark_case import MANIFEST, TARGET

FILES: list[tuple[bytes, list[str], list[list[str]]]] = [
    (b"m,us\n1,2.5\n", ["m", "us"], [["1", "2.5"]]),
    (b"\xef\xbb\xbfm, us\r\n1, 2.5\r\n", ["m", "us"], [["1", "2.5"]]),
    (b'name,us\n"a,b",007\n', ["name", "us"], [["a,b", "007"]]),
    (b"m,us\n\n1,nan\n2,\n", ["m", "us"], [["1", "nan"], ["2", ""]]),
    (b"m,us\n1\n", ["m", "us"], [["1", ""]]),
    (b",m,us\n0,1,2\n", ["", "m", "us"], [["0", "1", "2"]]),
    (b"m,us\n1,1e-3\n", ["m", "us"], [["1", "1e-3"]]),
    (b"m,us\nTrue,NA\n", ["m", "us"], [["True", "NA"]]),
    (b"m, us\n1,2\nm,us\n2,3\n", ["m", "us"], [["1", "2"], ["2", "3"]]),  # two files in one
    (b"m,us\n", ["m", "us"], []),
    (b"", [], []),
    (b'[{"m": 1, "us": 2.50, "ok": true}, {"us": 1e-3, "m": 2, "why": null}]',
     ["m", "us", "ok", "why"], [["1", "2.50", "true", ""], ["2", "1e-3", "", ""]]),
    (b'{"context": {"cpus": 2}, "benchmarks": [{"name": "f/8", "us": 3, "all": [1, 2]}]}',
     ["name", "us"], [["f/8", "3"]]),
    (b'{"machine_info": {}, "benchmarks": [{"name": "t[8]", "fullname": "b.py::t[8]", '
     b'"params": {"n": 8}, "param": "8", '
     b'"extra_info": {"err": 0.5}, "stats": {"min": 1e-3, "median": 2e-3, "data": [1]}}]}',
     ["name", "n", "err", "min_time_s", "median_time_s", "passed"],
     [["t[8]", "8", "0.5", "1e-3", "2e-3", "true"]]),
    (b'[{"name": "f/8", "us": 3, "stats": {"median": 2e-3}}]', ["name", "us"], [["f/8", "3"]]),
    (b"[us],m\n1,2\n", ["[us]", "m"], [["1", "2"]]),
]


NO_FILES = [
    (b"[" * 100_000, "is JSON, but nested too deeply"),
    (b"m,us\n1,2,3\n", "is not CSV: "), (b"m,us,m\n1,2,3\n", "has the column 'm' twice"),
    (b"m,us\n\xff,1\n", "is not UTF-8 text (at byte 5)"), (b"m\0\n1\n", "it holds a zero byte"),
    (b"m,us\n" + b"1,2\n" * 5000, "has 5000 rows, more than 4096"),
    (b",".join(b"c%d" % n for n in range(300)), "has 300 columns, more than 256"),
    (b"m,us\n1," + b"9" * 600, "has a cell of more than 500 characters"),
    (b'{"a": 1}', "is JSON, but no list of objects, one for each row"),
    (b'[{"us": 1}, 2]', "is JSON, but no list of objects, one for each row"),
    (b"x" * (5 << 20), "is larger than 4096 KiB"),
]


@pytest.mark.parametrize(("data", "columns", "lines"), FILES)
def test_cells_keep_their_text(data: bytes, columns: list[str], lines: list[list[str]],
                               tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_bytes(data)
    table = child.read(str(tmp_path / "b.csv"), result_table.TABLE_LIMITS)
    assert (table["columns"], table["rows"]) == (columns, lines)


@pytest.mark.parametrize(("data", "message"), NO_FILES)
def test_file_that_is_not_a_table_within_the_limits_is_refused(data: bytes, message: str,
                                                               tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_bytes(data)
    with pytest.raises(child.UnreadableTable) as caught:
        child.read(str(tmp_path / "b.csv"), result_table.TABLE_LIMITS)
    assert message in str(caught.value)


def test_missing_pandas_names_the_python_and_the_fix(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = str(tmp_path / "bare/bin/python")
    (tmp_path / "b.csv").write_text("m,us\n1,2\n")
    with pytest.raises(EnvironmentFault) as caught:
        result_table.read(tmp_path / "b.csv", "b.csv", tmp_path / "reader", python)
    assert str(caught.value) == (
        f"{python}: cannot import pandas, which reads the benchmark's table: ModuleNotFoundError: "
        f"No module named 'pandas' ({python} -m pip install pandas)")


def test_reader_runs_in_its_own_process(tmp_path: Path) -> None:
    folder, path = tmp_path / "reader", tmp_path / "b.csv"
    path.write_text("Unnamed: 0,m,us\n0,\x1b[31m1,2\n")
    table = result_table.read(path, "b.csv", folder)
    assert (table.columns, table.rows) == (("m", "us"), (("1", "2"),))
    assert len(table.sha256) == 64
    path.write_bytes(b"m\xff")
    with pytest.raises(BenchmarkFault, match=r"b\.csv is not UTF-8 text"):
        result_table.read(path, "b.csv", folder)
    with pytest.raises(BenchmarkFault, match=r"b\.csv cannot be read: No such file"):
        result_table.read(tmp_path / "none.csv", "b.csv", folder)


OLD = ("target_op: x\nbenchmark_command: bench --csv out.csv\n"
       "target: {kind: command, csv: out.csv, check: ok, metrics: [tflops]}\n")


NEW = """\
target_op: x
benchmark_command: python bench.py
quick_command: python bench.py --quick
build_command: make
representative_shapes: all
edit: [kernel.py]
target:
  kind: command
  csv: out/bench.csv
  check: {column: err, rule: "<= 1e-3"}
  metrics:
    - {name: Forward, unit: TFLOPS}
    - {name: Backward, unit: TFLOPS, direction: higher, weight: 2}
  configs: [m]
  ignore: [host]
  scoring: total
  timeout_s: 60
"""


def test_short_and_long_manifest_forms_are_read() -> None:
    old, new = (benchmark_target.command_target(parse(text, "m")) for text in (OLD, NEW))
    assert old == CommandTarget(op="x", command="bench --csv out.csv", csv="out.csv",
                                check=CheckColumn(column="ok"), metrics=(Metric(name="tflops"),))
    assert new == CommandTarget(
        op="x", command="python bench.py", csv="out/bench.csv", build_command="make",
        quick_command="python bench.py --quick", same_rows=True,
        check=CheckColumn(column="err", rule="<= 1e-3"), configs=("m",), ignore=("host",),
        metrics=(Metric(name="Forward", unit="TFLOPS"),
                 Metric(name="Backward", unit="TFLOPS", direction="higher", weight=2.0)),
        scoring="total", timeout_s=60.0, source="kernel.py", language="python")
    manifest = parse(NEW, "m")
    assert manifest.target.check == CheckColumn(column="err", rule="<= 1e-3")
    assert manifest.target.metrics[0] == Metric(name="Forward", unit="TFLOPS")
    assert parse(dump(manifest, brief=True), "m") == manifest == parse(dump(manifest), "m")


BAD_MANIFESTS = [
    ("check: ok", "check: err <= many",
     "m:3: target.check: '<= many' needs a number (such as: err == 0, or ok == PASS)"),
    ("[tflops]", "[tflops, tflops]", "m:3: target.metrics[1]: 'tflops' is declared twice"),
    ("[tflops]", "[{name: t, unit: us, direction: higher}]",
     "m:3: target.metrics[0]: 't': lower us is better, not higher (known units are, "
     "for example, us, TFLOPS and GB/s; any other needs a direction, lower or higher: "
     "{name: t, direction: lower})"),
    ("csv: out.csv", "csv: /tmp/out.csv",
     "m:3: target.csv: '/tmp/out.csv' is not a file inside the project (the benchmark runs in the "
     "project's folder and writes its CSV there)"),
    ("[tflops]", "[{name: t, unti: us}]",
     "m:3: unknown key 'target.metrics[0].unti' (did you mean 'unit'?)"),
    ("kind: command", "kind: command, configs: [ok]",
     "m:3: target.configs[0]: 'ok' is a metric or the check"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD_MANIFESTS)
def test_error_of_a_command_target_is_one_line_with_its_place(
        old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(OLD.replace(old, new), "m")
    assert str(caught.value) == message


def manifest(**fields: Any) -> Manifest:
    return parse(yaml_document.dump({**MANIFEST, **fields}), "m")


def test_benchmark_without_editable_files_cannot_run() -> None:
    benchmark_target.check_runnable(manifest())
    with pytest.raises(InputError, match="must say which files may change"):
        benchmark_target.check_runnable(manifest(edit=[]))


HERE = ["bench.py", "kernel.py", "lib/a.py", "lib/b.py", "tests/ops/test_x.py", "tools/run.sh",
        "pkg/bench.py", "[odd].py"]


@pytest.mark.parametrize(("fields", "kept"), [
    ({}, ("bench.py",)),
    ({"frozen": ["lib/*"]}, ("lib/*", "bench.py")),
    ({"benchmark_command": "./tools/run.sh kernel.py"}, ("tools/run.sh",)),
    ({"benchmark_command": "./tools/run.sh kernel.py", "edit": ["*.py"]},
     ("kernel.py", "tools/run.sh")),
    ({"benchmark_command": "sh -c 'python bench.py > log'"}, ("bench.py",)),
    ({"benchmark_command": "python -m pkg.bench"}, ("pkg/bench.py",)),
    ({"test_command": "pytest tests/ops -k 'a and b'"}, ("bench.py", "tests/ops/test_x.py")),
    ({"quick_command": "python lib/", "edit": ["lib/a.py"]}, ("bench.py", "lib/b.py")),
    ({"test_command": "pytest tests/ops/test_x.py::test_a"}, ("bench.py", "tests/ops/test_x.py")),
])
def test_files_named_by_commands_are_frozen(fields: dict[str, Any], kept: tuple[str, ...]) -> None:
    assert set(benchmark_target.frozen_globs(manifest(**fields), HERE)) == set(kept)


def test_request_round_trips_through_json() -> None:
    request = ReportedRequest(target=TARGET, device="cpu", settings=Settings(scratch="/tmp/x"),
                              trees=Trees(candidate="a", incumbent="b", reference="b"))
    assert from_json(to_json(request), Request) == request
