"""Reading a benchmark's table: units, checks, faults, rows, classes, looks and the manifest."""

from __future__ import annotations

import math
import venv
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.manifest import benchmark_target
from engine.manifest.load import dump, parse
from engine.manifest.schema import Manifest
from harness.benchmark.runs import result_table, row_keys, run_pairs, stopping_rule
from harness.benchmark.runs.result_table import BenchmarkFault, CsvReader, ResultTable, TableReading
from harness.benchmark.runs.run_pairs import BrokenIncumbent, RunPair
from harness.benchmark.spec import table_rules
from harness.benchmark.spec.command_target import CheckColumn, CommandTarget, Metric
from harness.benchmark.spec.metric_units import RowCost, resolve, unit_in
from harness.benchmark.spec.table_rules import check_in
from harness.benchmark.spec.validate import faults
from harness.benchmark.verdict import benchmark_rows
from harness.child import read_csv as child
from harness.errors import EnvironmentFault, InputError
from harness.formats import yaml_document
from harness.formats.json_codec import from_json, to_json
from harness.requests import ReportedRequest, Request
from harness.settings import Settings, Trees
from harness.timing.plan import Plan
from tests.support.benchmark_case import MANIFEST, TARGET, target
from tests.support.table_case import A, B, C, pair, reading_of, run, series

UNITS = [
    ("us_flydsl_ps", "us"), ("fwd_us", "us"), ("Forward TFLOPS", "TFLOPS"), ("time_s", "s"),
    ("latency (ms)", "ms"), ("bw_gbps", "gbps"), ("bandwidth GB/s", "GB/s"), ("p50 µs", "µs"),
    ("s", ""), ("s_total", ""), ("class", ""), ("speed", ""), ("us_per_tflops", "tflops"),
]


@pytest.mark.parametrize(("name", "unit"), UNITS)
def test_unit_is_read_from_a_column_name(name: str, unit: str) -> None:
    assert unit_in(name) == unit


COSTS = [
    (Metric(name="fwd_us"), 2.0, 2.0), (Metric(name="t", unit="ms"), 2.0, 2000.0),
    (Metric(name="t", unit="ns"), 500.0, 0.5), (Metric(name="t_s"), 0.5, 5e5),
    (Metric(name="t", unit="μs"), 3.0, 3.0),
    (Metric(name="tflops"), 4.0, 250_000.0), (Metric(name="f", unit="GFLOP/s"), 4000.0, 250_000.0),
    (Metric(name="bw", unit="GB/s"), 1000.0, 1000.0), (Metric(name="bw", unit="TB/s"), 1.0, 1000.0),
    (Metric(name="q", unit="tokens/s"), 1000.0, 1000.0),
    (Metric(name="speed"), 10.0, 1e5),
    (Metric(name="loss", direction="lower"), 10.0, 10.0),
    (Metric(name="speed", unit="furlongs", direction="higher"), 10.0, 1e5),
]


@pytest.mark.parametrize(("metric", "value", "cost"), COSTS)
def test_values_become_costs_in_microseconds(metric: Metric, value: float,
                                             cost: float) -> None:
    assert resolve(metric).cost(value) == pytest.approx(cost)
    assert resolve(metric).cost(2 * value) == pytest.approx(
        cost / 2 if resolve(metric).is_rate else 2 * cost)


@pytest.mark.parametrize(("metric", "message"), [
    (Metric(name="t", unit="us", direction="higher"), "less us is better, not higher"),
    (Metric(name="f", unit="TFLOPS", direction="lower"), "more TFLOPS is better, not lower"),
    (Metric(name="f", unit="furlongs"), "the unit 'furlongs' does not say which direction")])
def test_contradicting_unit_and_direction_are_refused(metric: Metric, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(metric)


COMBINED = [
    ((Metric(name="fwd_us"), Metric(name="bwd_ms")), "auto", (10.0, 1.0), 1010.0),
    ((Metric(name="fwd_us"), Metric(name="bwd_us", weight=2.0)), "auto", (10.0, 5.0), 20.0),
    ((Metric(name="fwd TFLOPS"), Metric(name="bwd TFLOPS", weight=2.0)), "auto", (1.0, 2.0), 2e6),
    ((Metric(name="fwd_us"), Metric(name="bwd_us")), "geometric", (4.0, 9.0), 6.0),
    ((Metric(name="fwd_us"), Metric(name="GB/s")), "auto", (4.0, 1e6 / 9), 6.0),
]


@pytest.mark.parametrize(("metrics", "combine", "values", "cost"), COMBINED)
def test_metrics_of_one_unit_are_summed_others_averaged(
        metrics: tuple[Metric, ...], combine: Any, values: tuple[float, ...], cost: float) -> None:
    row_cost = RowCost(target(metrics=metrics, combine=combine))
    assert row_cost.combined(row_cost.costs(values)) == pytest.approx(cost)


def test_note_explains_the_latency() -> None:
    rates = RowCost(target(metrics=(Metric(name="fwd TFLOPS"), Metric(name="bwd TFLOPS",
                                                                      weight=2.0))))
    assert rates.note == ("latency_us is us per TFLOP by fwd TFLOPS + 2 x us per TFLOP by bwd "
                           "TFLOPS, as the benchmark reports it")


RULES = [
    ("== 0", "0", True), ("== 0", "0.0", True), ("== 0", "1", False), ("== 0", "", False),
    ("== 0", "-0", True), ("= 0", "0", True), ("!= 0", "1", True), ("!= 0", "nan", False),
    ("<= 1e-3", "0.001", True), ("<= 1e-3", "0.0011", False), ("<= 1e-3", "nan", False),
    ("< 1", "inf", False), (">= 0.99", "0.995", True), ("> 1", "PASS", False),
    ("PASS", "pass", True), ("PASS", "FAIL", False), ("== PASS|OK", "ok", True),
    ("== 'PASS'", "PASS", True), ("", "passed", True), ("", "True", True), ("", "FAIL", False),
    ("", "0", False), ("", "1", False), ("!= FAIL", "PASS", True), ("!= FAIL", "fail", False),
]


@pytest.mark.parametrize(("text", "cell", "passes"), RULES)
def test_check_rule_passes_cells(text: str, cell: str,
                                 passes: bool) -> None:
    assert table_rules.parse(text).passes(cell) is passes


@pytest.mark.parametrize(("text", "check"), [
    ("err == 0", CheckColumn(column="err", rule="== 0")), ("ok", CheckColumn(column="ok")),
    ("err_flydsl_ps<=1e-3", CheckColumn(column="err_flydsl_ps", rule="<=1e-3")),
    ("Check == PASS|OK", CheckColumn(column="Check", rule="== PASS|OK")),
    ("max err < 2", CheckColumn(column="max err", rule="< 2"))])
def test_check_is_parsed_from_one_line(text: str, check: CheckColumn) -> None:
    assert check_in(text) == check


BAD_TARGETS = [
    ({"csv": ""}, ("csv",), "is no file inside the project"),
    ({"csv": "/tmp/x.csv"}, ("csv",), "is no file inside the project"),
    ({"csv": "../x.csv"}, ("csv",), "is no file inside the project"),
    ({"command": " "}, ("command",), "the command runs nothing"),
    ({"quick_command": "A=1"}, ("quick_command",), "the command runs nothing"),
    ({"quick_command": "sh 'a"}, ("quick_command",), "not well quoted"),
    ({"metrics": ()}, ("metrics",), "no metric is named"),
    ({"metrics": (Metric(name="us"), Metric(name="us"))}, ("metrics", 1), "is there twice"),
    ({"metrics": (Metric(name="us", weight=0.0),)}, ("metrics", 0, "weight"), "above 0"),
    ({"metrics": (Metric(name="us", unit="parsecs"),)}, ("metrics", 0), "does not say which"),
    ({"check": CheckColumn(column="err", rule="<= many")}, ("check",), "needs a number"),
    ({"check": CheckColumn(column="err", rule="==")}, ("check",), "compares with nothing"),
    ({"check": CheckColumn(column="err", rule="<= nan")}, ("check",), "what is not a number"),
    ({"configs": ("fwd_us",)}, ("configs", 0), "is a metric or the check"),
    ({"ignore": ("err",)}, ("ignore", 0), "is a metric or the check"),
    ({"combine": "step", "metrics": (Metric(name="us"), Metric(name="GB/s"))}, ("combine",),
     "a step is the sum of times"),
    ({"timeout_s": math.inf}, ("timeout_s",), "above 0"),
]


@pytest.mark.parametrize(("fields", "key", "message"), BAD_TARGETS)
def test_invalid_target_is_refused(fields: dict[str, Any], key: tuple[str | int, ...],
                                   message: str) -> None:
    fault = next(iter(faults(replace(TARGET, **fields))))
    assert fault[0] == key and message in fault[1]


FAULTS = [
    ("empty-table", (), {}, "b.csv has a header and no rows"),
    ("missing-column", ("1,2",), {"head": "m,fwd_us"}, "b.csv has no column 'err'"),
    ("missing-column", ("1,0,2",), {"head": "m,err,fwd_us"}, "b.csv has no column 'bwd_us'"),
    ("nan", ("1,2,3,0,nan,5",), {}, "b.csv row 1: fwd_us is NaN"),
    ("nan", ("1,2,3,0,4,5", "1,2,3,0,,5"), {}, "b.csv row 2: fwd_us is empty"),
    ("not-a-number", ("1,2,3,0,4,fast",), {}, "b.csv row 1: bwd_us is 'fast', no number"),
    ("not-a-number", ("1,2,3,0,1_0,5",), {}, "b.csv row 1: fwd_us is '1_0', no number"),
    ("not-positive", ("1,2,3,0,0,5",), {}, "b.csv row 1: fwd_us is 0, no number above zero"),
    ("not-positive", ("1,2,3,0,-1,5",), {}, "b.csv row 1: fwd_us is -1, no number above zero"),
    ("not-positive", ("1,2,3,0,inf,5",), {}, "b.csv row 1: fwd_us is inf, no number above zero"),
]


@pytest.mark.parametrize(("kind", "lines", "more", "message"), FAULTS)
def test_each_table_fault_has_kind_and_line(kind: str, lines: tuple[str, ...],
                                            more: dict[str, Any], message: str) -> None:
    with pytest.raises(BenchmarkFault) as caught:
        reading_of(*lines, **more)
    assert (caught.value.kind, caught.value.what) == (kind, message)


def test_file_without_header_is_empty() -> None:
    with pytest.raises(BenchmarkFault, match=r"b\.csv is empty") as caught:
        result_table.judge_table(
            ResultTable(columns=(), rows=()), TARGET, RowCost(TARGET), csv="b.csv"
        )
    assert caught.value.kind == "empty-table"


def test_times_of_failing_rows_are_ignored() -> None:
    reading = reading_of("1,2,3,0,4,5", "2,2,3,1,nan,0", "3,2,3,nan,4,5")
    assert [(failure.row, failure.what) for failure in reading.failed] == [
        (1, "err is '1', expected == 0"), (2, "err is 'nan', expected == 0")]


def test_steady_columns_are_config_columns() -> None:
    result = series(pair(run(1, A, B, C), run(2, C, A, B)), pair(run(3, B, C, A), run(4, A, B, C)))
    assert result.config == row_keys.ConfigColumns(columns=("m", "n"))
    assert [row_class.name for row_class in result.classes] == ["m=1 n=1", "m=1 n=2", "m=2 n=2"]
    assert result.overall == (0.0, 0.0) and len(result.keys) == 3


def test_rows_are_matched_by_configuration() -> None:
    slow = "2,2,{},0,20,40"
    result = series(
        pair(run(1, A, B, C), run(2, slow, B, A)),
        pair(run(3, C, B, A), run(4, B, slow, A)),
    )
    assert [row_class.log_ratios for row_class in result.classes] == [(0, 0), (0, 0), pytest.approx(
        (math.log(2),) * 2)]
    assert result.classes[2].candidate_us == pytest.approx(60)
    assert result.classes[2].incumbent_us == pytest.approx(120)
    assert result.overall == pytest.approx((math.log(2) / 3,) * 2)


def test_constant_column_is_checked_but_not_named() -> None:
    benchmark = target(configs=())
    head = "m,dtype,err,fwd_us,bwd_us"
    ours = reading_of("1,fp16,0,1,1", "2,fp16,0,1,1", head=head, benchmark=benchmark)
    theirs = reading_of("1,fp8,0,1,1", "2,fp8,0,1,1", head=head, benchmark=benchmark)
    assert [
        row_class.name for row_class in series(RunPair(incumbent=ours, candidate=ours)).classes
    ] == ["m=1", "m=2"]
    message = "missing: m=1 dtype=fp16, m=2 dtype=fp16; new: m=1 dtype=fp8"
    with pytest.raises(BenchmarkFault, match=message):
        series(RunPair(incumbent=ours, candidate=theirs))


def test_single_row_is_named_by_all_columns() -> None:
    result = series(pair(run(1, A), run(2, A)), pair(run(3, A), run(4, A)))
    assert [row_class.name for row_class in result.classes] == ["m=1 n=1"]
    bare = reading_of("0,1,1", head="err,fwd_us,bwd_us")
    assert [
        row_class.name for row_class in series(RunPair(incumbent=bare, candidate=bare)).classes
    ] == ["all"]


CHANGED = [
    ((A, B, C), (A, B), "changed-rows", "has 2 rows, the incumbent has 3; missing: m=2 n=2"),
    ((A, B), (A, B, C), "changed-rows", "has 3 rows, the incumbent has 2; new: m=2 n=2"),
    ((A, B), (A, "7,2,{},0,1,1"), "changed-rows",
     "has 2 rows, the incumbent has 2; missing: m=1 n=2; new: m=7 n=2"),
    ((A, B), (A, A), "duplicate-rows",
     "rows 1 and 2 are of the same configuration: m=1 n=1"),
]


@pytest.mark.parametrize(("ours", "theirs", "kind", "message"), CHANGED)
def test_changed_rows_are_the_candidates_fault(
        ours: tuple[str, ...], theirs: tuple[str, ...], kind: str, message: str) -> None:
    with pytest.raises(BenchmarkFault) as caught:
        series(pair(run(1, *ours), run(2, *theirs)), pair(run(3, *ours), run(4, *theirs)))
    assert (caught.value.kind, caught.value.what) == (kind, message)


@pytest.mark.parametrize("runs", [((A, A), (A, A)), ((A, B), (A, B, C)),
                                  ((A, B), (A, "7,7,{},0,1,1"))])
def test_changing_incumbent_rows_raise_broken_incumbent(
        runs: tuple[tuple[str, ...], ...]) -> None:
    with pytest.raises(BrokenIncumbent, match="the incumbent's own benchmark: "):
        series(*(pair(run(n, *rows), run(9 + n, A, B)) for n, rows in enumerate(runs)))


def test_column_unsteady_for_the_candidate_is_left_out() -> None:
    def at(temperature: int) -> TableReading:
        return reading_of(f"1,1,{temperature},0,1,1", f"1,2,{temperature},0,1,1")

    result = series(RunPair(incumbent=at(45), candidate=at(45)), RunPair(incumbent=at(45),
                                                                         candidate=at(46)))
    assert result.config == row_keys.ConfigColumns(columns=("m", "n"), unsteady=("at",))


def test_candidate_cannot_change_config_columns() -> None:
    with pytest.raises(BenchmarkFault, match="missing: m=1 n=1"):
        series(pair(run(1, A, C), run(1, A, C)), pair(run(1, A, C), run(1, "3,3,{},0,1,1", C)))


def test_ignored_column_is_no_config_column() -> None:
    benchmark = target(ignore=("at",))
    result = series(pair(run(1, A, B), run(2, A, B), benchmark), benchmark=benchmark)
    assert result.config.columns == ("m", "n")


def test_missing_config_column_is_reported() -> None:
    ours, theirs = (
        reading_of(*run(1, A, B)),
        reading_of("1,0,1,1", "2,0,1,1", head="n,err,fwd_us,bwd_us"),
    )
    with pytest.raises(BenchmarkFault, match="the column 'm' is gone") as caught:
        series(RunPair(incumbent=ours, candidate=theirs))
    assert caught.value.kind == "missing-column"


def test_classes_weigh_their_number_of_rows() -> None:
    benchmark = target(configs=("m",))
    half = "1,2,{},0,10,20"
    result = series(
        *(pair(run(n, A, B, C), run(9 + n, A, half, C), benchmark) for n in range(2)),
        benchmark=benchmark,
    )
    assert [(row_class.name, row_class.rows) for row_class in result.classes] == [
        ("m=1", 2),
        ("m=2", 1),
    ]
    assert result.classes[0].log_ratios == pytest.approx((math.log(2) / 2,) * 2)


@pytest.mark.parametrize(("scoring", "speedup"), [("geometric", 2 ** (1 / 3)),
                                                  ("total", (30 + 60 + 120) / (30 + 60 + 60))])
def test_scoring_is_geometric_or_total(scoring: Any, speedup: float) -> None:
    benchmark = target(scoring=scoring)
    half = "2,2,{},0,20,40"
    pairs = [pair(run(n, A, B, C), run(9 + n, A, B, half), benchmark) for n in range(3)]
    result = series(*pairs, benchmark=benchmark)
    verdict = benchmark_rows.verdict_of(
        benchmark_rows.ModeResults(
            target=benchmark,
            row_cost=RowCost(benchmark),
            plan=Plan(),
            mode=benchmark.full,
            pairs=pairs,
            series=result,
        )
    )
    assert verdict.speedup == pytest.approx(speedup) and verdict.latency_kind == "reported"
    assert verdict.latency_us == pytest.approx(
        150 if scoring == "total" else (30 * 60 * 60) ** (1 / 3))


def classes(*gains: float, spread: float = 0.0) -> run_pairs.ClassSeries:
    """Return a class with the given gain of each pair."""
    return run_pairs.ClassSeries(
        name="c", rows=1, weight=1.0, by_metric={}, candidate_us=1.0, incumbent_us=1.0,
        log_ratios=tuple(math.log1p(gain + spread * (-1) ** n) for n, gain in enumerate(gains)))


SURE, UNSURE = (0.0151, 0.0150, 0.0152), (0.06, -0.05, 0.04)
AGAIN = [
    ((0.0301, 0.03, 0.0302), None, "faster", ""),
    (SURE, None, "tie", "1.51% faster, but not when it was measured again"),
    (SURE, UNSURE, "tie", "1.51% faster, but not when it was measured again"),
    (SURE, SURE, "faster", "1.51% faster, and 1.51% when it was measured again"),
    ((0.0051, 0.005, 0.0052), (0.0051, 0.005, 0.0052), "faster",
     "0.51% faster, and 0.51% when it was measured again"),
    ((0.0051, 0.005, 0.0052), UNSURE, "tie", "0.51% faster, but not when it was measured again"),
    (UNSURE, None, "tie", ""),
    ((-0.2, -0.201, -0.199), None, "slower", ""),
]


@pytest.mark.parametrize(("first", "again", "outcome", "note"), AGAIN)
def test_gain_under_2_percent_needs_a_repetition(
        first: tuple[float, ...], again: tuple[float, ...] | None, outcome: str,
        note: str) -> None:
    plan = Plan(looks=(3,), alpha=0.05)
    assert stopping_rule.class_outcome(
        classes(*first), plan, classes(*again) if again else None
    ) == (outcome, note)


def test_worse_metric_is_named_with_a_gain() -> None:
    row_class = replace(classes(0.2, 0.201, 0.199), by_metric={
        "fwd_us": tuple(math.log1p(g) for g in (0.4, 0.401, 0.399)),
        "bwd_us": tuple(math.log1p(g) for g in (-0.1, -0.101, -0.099))})
    assert stopping_rule.class_outcome(row_class, Plan(looks=(3,), alpha=0.05), None) == (
        "faster", "bwd_us is 11.1% worse")


@pytest.mark.parametrize(("most", "looks"), [(None, stopping_rule.LOOKS), (3, (3,)), (1, (3,)),
                                             (7, (3, 4, 6)), (200, stopping_rule.LOOKS)])
def test_at_least_three_pairs_run(most: int | None, looks: tuple[int, ...]) -> None:
    assert stopping_rule.plan_for(Plan(), most).looks == looks
    assert stopping_rule.at_least((1, 2)) == (3,) and stopping_rule.at_least((1, 4)) == (4,)


FILES: list[tuple[bytes, list[str], list[list[str]]]] = [
    (b"m,us\n1,2.5\n", ["m", "us"], [["1", "2.5"]]),
    (b"\xef\xbb\xbfm, us\r\n1, 2.5\r\n", ["m", "us"], [["1", "2.5"]]),
    (b'name,us\n"a,b",007\n', ["name", "us"], [["a,b", "007"]]),
    (b"m,us\n\n1,nan\n2,\n", ["m", "us"], [["1", "nan"], ["2", ""]]),
    (b"m,us\n1\n", ["m", "us"], [["1", ""]]),
    (b",m,us\n0,1,2\n", ["", "m", "us"], [["0", "1", "2"]]),
    (b"m,us\n1,1e-3\n", ["m", "us"], [["1", "1e-3"]]),
    (b"m,us\nTrue,NA\n", ["m", "us"], [["True", "NA"]]),
    (b"m,us\n", ["m", "us"], []),
    (b"", [], []),
]
NO_FILES = [
    (b"m,us\n1,2,3\n", "is no CSV: "), (b"m,us,m\n1,2,3\n", "has the column 'm' twice"),
    (b"m,us\n\xff,1\n", "is no UTF-8 text (at byte 5)"), (b"m\0\n1\n", "it holds a zero byte"),
    (b"m,us\n" + b"1,2\n" * 5000, "has 5000 rows, more than 4096"),
    (b",".join(b"c%d" % n for n in range(300)), "has 300 columns, more than 256"),
    (b"m,us\n1," + b"9" * 600, "has a cell of more than 500 characters"),
    (b"x" * (5 << 20), "is larger than 4096 KiB"),
]


@pytest.mark.parametrize(("data", "columns", "lines"), FILES)
def test_cells_keep_their_text(data: bytes, columns: list[str], lines: list[list[str]],
                               tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_bytes(data)
    table = child.read(str(tmp_path / "b.csv"), result_table.TABLE_LIMITS)
    assert (table["columns"], table["rows"]) == (columns, lines)


@pytest.mark.parametrize(("data", "message"), NO_FILES)
def test_file_that_is_no_table_within_the_limits_is_refused(data: bytes, message: str,
                                                            tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_bytes(data)
    with pytest.raises(child.UnreadableTable) as caught:
        child.read(str(tmp_path / "b.csv"), result_table.TABLE_LIMITS)
    assert message in str(caught.value)


def test_missing_pandas_names_the_python_and_the_fix(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = str(tmp_path / "bare/bin/python")
    (tmp_path / "b.csv").write_text("m,us\n1,2\n")
    with closing(CsvReader(tmp_path / "reader", python)) as reader, \
            pytest.raises(EnvironmentFault) as caught:
        reader.read(tmp_path / "b.csv", "b.csv")
    assert str(caught.value) == (
        f"{python}: cannot import pandas, which reads the benchmark's table: ModuleNotFoundError: "
        f"No module named 'pandas' ({python} -m pip install pandas)")


def test_reader_runs_in_its_own_process(tmp_path: Path) -> None:
    reader = CsvReader(tmp_path / "reader")
    path = tmp_path / "b.csv"
    path.write_text("Unnamed: 0,m,us\n0,\x1b[31m1,2\n")
    table = reader.read(path, "b.csv")
    assert (table.columns, table.rows) == (("m", "us"), (("1", "2"),))
    assert len(table.sha256) == 64
    path.write_bytes(b"m\xff")
    with pytest.raises(BenchmarkFault, match=r"b\.csv is no UTF-8 text"):
        reader.read(path, "b.csv")
    with pytest.raises(BenchmarkFault, match=r"b\.csv cannot be read: No such file"):
        reader.read(tmp_path / "none.csv", "b.csv")


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
    ("[tflops]", "[tflops, tflops]", "m:3: target.metrics[1]: 'tflops' is there twice"),
    ("[tflops]", "[{name: t, unit: us, direction: higher}]",
     "m:3: target.metrics[0]: 't': less us is better, not higher (units are ns, us, ms, s, "
     "GFLOPS, TFLOPS, GB/s, or any with a direction: {name: t, direction: lower}, or higher)"),
    ("csv: out.csv", "csv: /tmp/out.csv",
     "m:3: target.csv: '/tmp/out.csv' is no file inside the project (the benchmark runs in the "
     "project's folder and writes its CSV there)"),
    ("[tflops]", "[{name: t, unti: us}]",
     "m:3: unknown key 'target.metrics[0].unti' (did you mean 'unit'?)"),
    ("kind: command", "kind: command, configs: [ok]",
     "m:3: target.configs[0]: 'ok' is a metric or the check"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD_MANIFESTS)
def test_bad_command_target_is_one_line_with_place(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(OLD.replace(old, new), "m")
    assert str(caught.value) == message


def manifest(**fields: Any) -> Manifest:
    return parse(yaml_document.dump({**MANIFEST, **fields}), "m")


def test_benchmark_without_editable_files_cannot_run() -> None:
    benchmark_target.check_runnable(manifest())
    with pytest.raises(InputError, match="says what a candidate may change"):
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
