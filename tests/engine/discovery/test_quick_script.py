"""Guards the rows chosen to represent classes, the quick script, and edits of the manifest."""

from __future__ import annotations

import csv
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.discovery.classes import (
    class_baseline,
    proposal,
    quick_script,
    representative,
    strata,
)
from engine.discovery.classes.proposal import ClassProposal
from engine.manifest import load, schema
from harness.benchmark.runs import run_pairs
from harness.benchmark.runs.result_table import CsvReader, ResultTable, judge_table
from harness.benchmark.runs.workdir import CommandEnvironment, WorkingCopy
from harness.benchmark.spec.command_target import CheckColumn, CommandTarget, Metric
from harness.benchmark.spec.metric_units import RowCost
from harness.benchmark.verdict import benchmark_rows
from harness.errors import InputError
from harness.isolation import device_lock
from harness.timing.plan import Plan
from tests.support import strata_case as case

TARGET = CommandTarget(op="pa", command="python bench.py --all", csv="out.csv",
                       metrics=(Metric(name="us"),), check=CheckColumn(column="err", rule="== 0"))


def chosen(rows: list[dict[str, object]], costs: list[float],
           configs: tuple[str, ...] = ()) -> representative.Representatives:
    looked = case.looked(rows)
    return representative.choose_rows(
        strata.find_strata(looked, costs, configs=configs).classes, looked, costs
    )


def test_classes_have_median_row_and_core_ends() -> None:
    rows = [{"block_size": block, "context": context, "heads": 8}
            for block in (16, 1024) for context in (512, 1024, 2048, 4096, 8192)]
    costs = [float(row["context"]) * (9 if row["block_size"] == 1024 else 1) for row in rows]
    result = chosen(rows, costs, ("block_size",))
    assert result.rows == (2, 5, 7, 9)  # the small class's 2048; 512, 2048 and 8192 of the core
    assert (result.skewed, result.note) == (None, "")


def test_class_of_one_row_is_that_row() -> None:
    result = chosen([{"m": m} for m in (1, 2, 3)], [1.0, 1.0, 1.0])
    assert result.rows == (0, 1, 2)


@pytest.mark.parametrize(("column", "cells", "skewed"), [
    ("distribution", ["uniform", "skewed", "uniform", "uniform"], 1),
    ("routing", ["balanced", "balanced", "zipf", "balanced"], 2),
    ("skew", ["0", "0.5", "0.0", "0.25"], 1),
    ("expert_imbalance", ["1", "1", "1", "4"], 3),
    ("group_sizes", ["[64, 64]", "[64, 64]", "[128, 0]", "[96, 32]"], 2),
    ("tokens_per_expert", ["8;8;8", "20;2;2", "8;8;8", "8;8;8"], 1),
])
def test_grouped_work_always_has_a_skewed_row(column: str, cells: list[str], skewed: int) -> None:
    """A row where one expert holds most tokens is included, even if its class is cheap."""
    rows: list[dict[str, object]] = [{"m": 64 * (1 + at), column: cell}
                                     for at, cell in enumerate(cells)]
    looked = case.looked(rows)
    classes = strata.find_strata(looked, [5.0] * 4, configs=("*",)).classes
    result = representative.choose_rows(classes, looked, [100.0 if at != skewed else 1.0
                                                     for at in range(4)])
    assert result.skewed == skewed and skewed in result.rows


@pytest.mark.parametrize(("column", "cells", "part"), [
    ("distribution", ["uniform", "balanced", "even"], "all rows have equal groups"),
    ("num_experts", ["8", "16", "32"], "no row is known to be skewed"),
    ("group_sizes", ["[64, 64]", "[32, 32]", "[8, 8]"], "all rows have equal groups"),
    ("shape", ["[64, 1]", "[32, 9]", "[8, 8]"], ""),
    ("m", ["64", "32", "8"], ""),
])
def test_missing_skewed_row_is_noted(column: str, cells: list[str], part: str) -> None:
    note = chosen([{column: cell} for cell in cells], [1.0, 2.0, 3.0]).note
    assert part in note and bool(part) == bool(note)


def test_shapes_have_manifest_form() -> None:
    looked = case.looked([{"m": 64, "n": 8}, {"m": 128, "n": 16}])
    numbers = representative.row_cells(("m", "n"), looked, (1,))
    assert representative.manifest_shapes(numbers) == ({"m": 128, "n": 16},)
    words = ({"m": "64", "kind": "two words"},)
    assert representative.manifest_shapes(words) == ("m=64 'kind=two words'",)


BENCH = """\
import argparse, csv, json, os
parser = argparse.ArgumentParser()
parser.add_argument("--all", action="store_true"){options}
args = parser.parse_args()
rows = [dict(mtp=m, context=c, err=0, us=f"{{m * c}}.5") for m in (1, 2) for c in (512, 4096)]
with open("runs.txt", "a") as file:
    file.write("run ")
{restrict}
with open("out.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, rows[0]); writer.writeheader(); writer.writerows(rows)
"""
OPTIONS = """
parser.add_argument("-c", "--context", type=int)
parser.add_argument('--mtp', type=int)"""
BY_ARGUMENTS = """\
rows = [r for r in rows if args.mtp in (None, r["mtp"]) and args.context in (None, r["context"])]"""
BY_ENVIRONMENT = """\
shapes = json.loads(os.environ.get("KOPT_SHAPES", "[]"))
rows = [r for r in rows if not shapes or
        any(all(str(r[k]) == s[k] for k in s) for s in shapes)]"""
SHAPES = ({"mtp": "2", "context": "512"}, {"mtp": "1", "context": "4096"})


def ran(folder: Path, source: str, shapes: tuple[dict[str, str], ...] = SHAPES,
        target: CommandTarget = TARGET) -> tuple[quick_script.QuickScript,
        subprocess.CompletedProcess[str]]:
    """Write a benchmark and the script for it, and run the script in the benchmark's folder."""
    (folder / "bench.py").write_text(source)
    made = quick_script.make_script(target, shapes, source)
    script = folder / "campaign" / quick_script.NAME
    script.parent.mkdir()
    script.write_text(made.text)
    done = subprocess.run([sys.executable, str(script)], cwd=folder, capture_output=True, text=True,
                          timeout=60, check=False,
                          env={"PATH": Path(sys.executable).parent.as_posix()})
    return made, done


@pytest.mark.parametrize(("options", "restrict", "by", "runs"), [
    (OPTIONS, BY_ARGUMENTS, "arguments", 2), ("", BY_ENVIRONMENT, "environment", 1),
    ("", "", "filter", 1)])
def test_script_writes_the_rows_of_its_shapes(tmp_path: Path, options: str, restrict: str,
                                              by: str, runs: int) -> None:
    """By an argument for each column, by a variable, or by dropping the rest of a whole run."""
    (tmp_path / "out.csv").write_text("of an earlier run\n")
    made, done = ran(tmp_path, BENCH.format(options=options, restrict=restrict))
    assert (done.returncode, made.by) == (0, by), done.stderr
    assert done.stdout.splitlines() == ["mtp=2 context=512 err=0 us=1024.5",
                                        "mtp=1 context=4096 err=0 us=4096.5"]
    assert (tmp_path / "runs.txt").read_text().split() == ["run"] * runs
    with (tmp_path / "out.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["mtp", "context", "err", "us"],
                                          ["2", "512", "0", "1024.5"], ["1", "4096", "0", "4096.5"]]


def test_script_without_shapes_runs_everything(tmp_path: Path) -> None:
    _, done = ran(tmp_path, BENCH.format(options="", restrict=""), ())
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 4


@pytest.mark.parametrize(("restrict", "part"), [
    ("rows = rows[:1]", "no row for {'mtp': '2', 'context': '512'}"),
    ("raise SystemExit(3)", ""), ("os._exit(0)", "wrote no out.csv"),
    ("rows = [{'mtp': 1, 'err': 0}]", "has no column context"),
])
def test_failing_script_reports_reason(tmp_path: Path, restrict: str, part: str) -> None:
    (tmp_path / "out.csv").write_text("mtp,context,err,us\n2,512,0,1\n1,4096,0,1\n")
    _, done = ran(tmp_path, BENCH.format(options="", restrict=restrict))
    assert done.returncode != 0 and part in done.stderr


@pytest.mark.parametrize(("command", "file"), [
    ("python bench.py", "bench.py"), ("MODE=1 python ./tests/bench.py -q", "tests/bench.py"),
    ("python -m tests.bench", "tests/bench.py"), ("make bench", ""), ("python 'bench", ""),
])
def test_benchmark_file_is_found_in_the_command(command: str, file: str) -> None:
    assert quick_script.benchmark_file(command, ("bench.py", "tests/bench.py")) == file


TEXT = """\
# Ours.
target_op: pa
target:              # the benchmark
  kind: command
  csv: out.csv       # fresh each time
  check: err == 0
  metrics: [us]
benchmark_command: python bench.py

# Shapes that kopt chose.
representative_shapes:
  - {mtp: 1}
  - {mtp: 2}

# How long.
max_iterations: 5    # rounds
edit: [kernel.c]
"""


def test_edit_leaves_the_other_text() -> None:
    text = class_baseline.edit_manifest(TEXT, representative_shapes=({"mtp": 4},),
                              quick_command="python q.py")
    assert text == TEXT.replace("  - {mtp: 1}\n  - {mtp: 2}\n", "- {mtp: 4}\n") + \
        "quick_command: python q.py\n"


def test_edit_replaces_a_whole_part() -> None:
    old = load.parse(TEXT, "m")
    spec = schema.TargetSpec(kind="command", csv="out.csv", check="err == 0", metrics=("us",),
                               configs=("mtp", "context <= 1024"))
    text = class_baseline.edit_manifest(TEXT, target=spec)
    assert load.parse(text, "m").target == spec
    assert "# How long.\nmax_iterations: 5    # rounds" in text
    assert load.parse(text, "m").edit == old.edit


@pytest.mark.parametrize("text", [
    "{target_op: pa, max_iterations: 5}\n", '"target_op": pa\n"max_iterations": 5\n',
    "target_op: pa\nmax_iterations: 5", "target_op: pa\nmax_iterations:\n\n  5\n...\n",
])
def test_text_without_lines_is_rewritten(text: str) -> None:
    wanted = load.parse(text, "m")
    assert wanted.max_iterations == 5
    edited = load.parse(
        class_baseline.edit_manifest(text, max_iterations=7, target_backend="C"), "m"
    )
    assert (edited.max_iterations, edited.target_backend, edited.target_op) == (7, "C", "pa")


def test_invalid_edit_is_refused() -> None:
    with pytest.raises(InputError, match="expected a whole number of at most 119"):
        class_baseline.edit_manifest(TEXT, max_iterations=500)


CELLS = [(str(block), str(mtp), str(context)) for block in (16, 1024) for mtp in (1, 2)
         for context in (512, 1024, 4096, 16384)]


def proposed(source: str, **fields: Any) -> ClassProposal:
    """Return what a baseline with slow rows of large blocks and one token finds."""
    rows = tuple((*cells, "0", f"{int(cells[2]) * (3 if cells[:2] == ('1024', '1') else 1)}")
                 for cells in CELLS)
    table = ResultTable(columns=("block_size", "mtp", "context", "err", "us"), rows=rows)
    target = replace(TARGET, **fields)
    return proposal.propose_classes(
        target, [judge_table(table, target, RowCost(target), csv="out.csv")], source
    )


OPTIONED = "".join(f"parser.add_argument('--{name}')\n"
                   for name in ("block-size", "mtp", "context"))


def test_proposal_is_in_manifest_and_script(tmp_path: Path) -> None:
    file = tmp_path / "manifest.yaml"
    file.write_text(TEXT.replace("representative_shapes:\n  - {mtp: 1}\n  - {mtp: 2}\n", ""))
    script = class_baseline.write_script(tmp_path, load.load(file), OPTIONED)
    assert "SHAPES = []" in script.read_text()
    found = proposed(OPTIONED, command="python bench.py")
    made = class_baseline.write_classes(tmp_path, file, found)
    assert made.target.configs == ("block_size", "mtp")
    assert made.target.core == found.strata.core
    assert set(found.strata.core) >= {"block_size=1024 mtp=1"} and len(found.strata.core) < 4
    assert made.representative_shapes == found.shapes
    assert {"block_size": 1024, "mtp": 1, "context": 16384} in found.shapes
    assert made.quick_command == f"python {script}"
    assert '"context": "--context"' in script.read_text()
    assert '{"block_size": "1024", "mtp": "1", "context": "16384"},' in script.read_text()
    assert "# How long." in file.read_text()
    before = (file.read_bytes(), script.read_bytes())
    assert class_baseline.write_classes(tmp_path, file, found) == made
    class_baseline.write_script(tmp_path, made, OPTIONED)
    assert (file.read_bytes(), script.read_bytes()) == before, "written again, the same"


def test_slow_script_is_no_quick_command(tmp_path: Path) -> None:
    file = tmp_path / "manifest.yaml"
    file.write_text("target_op: pa\ntarget: {kind: command, csv: out.csv, check: err == 0, "
                    "metrics: [us]}\nbenchmark_command: make bench\nedit: [k.c]\n")
    made = class_baseline.write_classes(tmp_path, file, proposed(""))
    assert made.quick_command == "" and made.representative_shapes
    assert (tmp_path / quick_script.NAME).is_file()


def test_fields_of_a_person_stay(tmp_path: Path) -> None:
    file = tmp_path / "manifest.yaml"
    file.write_text(TEXT.replace("  metrics: [us]\n", "  metrics: [us]\n  configs: [mtp]\n"
                                 "  core: [mtp=2]\n") + "quick_command: python bench.py --quick\n")
    before = file.read_text()
    made = class_baseline.write_classes(tmp_path, file, proposed(OPTIONED, configs=("mtp",)))
    assert file.read_text() == before and made.quick_command == "python bench.py --quick"
    assert not (tmp_path / quick_script.NAME).exists()
    script = class_baseline.write_script(tmp_path, made, OPTIONED)
    assert '{"mtp": "1"},\n    {"mtp": "2"},' in script.read_text()


@pytest.mark.parametrize(("shapes", "cells"), [
    (({"m": 64},), ({"m": "64"},)),
    (("m=64 'kind=two words'",), ({"m": "64", "kind": "two words"},)),
    (((64, 32),), ()), ("all", ()), (None, ()), (({"m": 1}, "words"), ()),
])
def test_manifest_shapes_are_parsed_to_columns(shapes: object, cells: object) -> None:
    assert representative.parse_shapes(shapes) == cells


def test_core_classes_are_core_in_a_verdict() -> None:
    found = proposed("")
    target = replace(TARGET, configs=found.strata.configs, core=found.strata.core)
    table = ResultTable(columns=("block_size", "mtp", "err", "us"), rows=tuple(
        (block, mtp, "0", "5") for block in ("16", "1024") for mtp in ("1", "2")))
    run = judge_table(table, target, RowCost(target), csv="out.csv")
    pairs = [run_pairs.RunPair(incumbent=run, candidate=run)] * 3
    made = run_pairs.match_pairs(target, RowCost(target), pairs)
    rows = benchmark_rows.verdict_of(
        benchmark_rows.ModeResults(
            target=target,
            row_cost=RowCost(target),
            plan=Plan(),
            mode=target.full,
            pairs=pairs,
            series=made,
        )
    ).rows
    assert {row.config_class for row in rows if row.core} == set(found.strata.core)
    assert len(rows) == 4


def test_harness_runs_the_quick_script(tmp_path: Path) -> None:
    """The harness is confined to a copy of the project; the script is in the campaign folder."""
    campaign, tree = tmp_path / "campaign", tmp_path / "project"
    campaign.mkdir(), tree.mkdir()
    (tree / "bench.py").write_text(BENCH.format(options=OPTIONS, restrict=BY_ARGUMENTS))
    made = quick_script.make_script(TARGET, SHAPES, (tree / "bench.py").read_text())
    (campaign / quick_script.NAME).write_text(made.text)
    target = replace(
        TARGET, quick_command=quick_script.script_command(campaign / quick_script.NAME)
    )
    assert target.quick is not None
    side = WorkingCopy("incumbent", tree, tmp_path / "side", CommandEnvironment())
    with device_lock.acquire("cpu") as held:
        table, _ = side.benchmark(target.quick, CsvReader(tmp_path / "reader"), held)
    assert table.rows == (("2", "512", "0", "1024.5"), ("1", "4096", "0", "4096.5"))
