"""Tests the rows chosen to represent classes, their form in the manifest, and the quick script."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from engine.discovery.classes import (
    quick_script,
    representative,
    strata,
)
from harness.benchmark.spec.command_target import CommandTarget
from tests.support.benchmarks import strata_case as case
from tests.support.benchmarks.quick_script_case import BENCH, BY_ARGUMENTS, OPTIONS, SHAPES, TARGET


def choose(rows: list[dict[str, object]], costs: list[float],
           configs: tuple[str, ...] = ()) -> representative.Representatives:
    classified = case.columns_of(rows)
    return representative.choose_rows(
        strata.find_strata(classified, costs, configs=configs).classes, classified, costs
    )


def test_each_class_has_its_median_row_and_a_core_class_its_cheapest_and_dearest() -> None:
    rows = [{"block_size": block, "context": context, "heads": 8}
            for block in (16, 1024) for context in (512, 1024, 2048, 4096, 8192)]
    costs = [float(row["context"]) * (9 if row["block_size"] == 1024 else 1) for row in rows]
    result = choose(rows, costs, ("block_size",))
    assert result.rows == (2, 5, 7, 9)  # small class: context 2048; core: 512, 2048, 8192
    assert (result.skewed, result.note) == (None, "")


def test_class_of_one_row_is_represented_by_it() -> None:
    result = choose([{"m": m} for m in (1, 2, 3)], [1.0, 1.0, 1.0])
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
    classified = case.columns_of(rows)
    classes = strata.find_strata(classified, [5.0] * 4, configs=("*",)).classes
    result = representative.choose_rows(classes, classified, [100.0 if at != skewed else 1.0
                                                              for at in range(4)])
    assert result.skewed == skewed and skewed in result.rows


@pytest.mark.parametrize(("column", "cells", "part"), [
    ("distribution", ["uniform", "balanced", "even"], "all rows have equal groups"),
    ("num_experts", ["8", "16", "32"], "no row is known to be skewed"),
    ("group_sizes", ["[64, 64]", "[32, 32]", "[8, 8]"], "all rows have equal groups"),
    ("shape", ["[64, 1]", "[32, 9]", "[8, 8]"], ""),
    ("m", ["64", "32", "8"], ""),
])
def test_lack_of_a_skewed_row_is_noted(column: str, cells: list[str], part: str) -> None:
    note = choose([{column: cell} for cell in cells], [1.0, 2.0, 3.0]).note
    assert part in note and bool(part) == bool(note)


def test_shapes_have_manifest_form() -> None:
    classified = case.columns_of([{"m": 64, "n": 8}, {"m": 128, "n": 16}])
    numbers = representative.row_cells(("m", "n"), classified, (1,))
    assert representative.manifest_shapes(numbers) == ({"m": 128, "n": 16},)
    words = ({"m": "64", "kind": "two words"},)
    assert representative.manifest_shapes(words) == ("m=64 'kind=two words'",)


BY_ENVIRONMENT = """\
shapes = json.loads(os.environ.get("KOPT_SHAPES", "[]"))
rows = [r for r in rows if not shapes or
        any(all(str(r[k]) == s[k] for k in s) for s in shapes)]"""


def run_script(folder: Path, source: str, shapes: tuple[dict[str, str], ...] = SHAPES,
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
    """It selects them by arguments, by a variable, or by dropping the others of a full run."""
    (tmp_path / "out.csv").write_text("of an earlier run\n")
    made, done = run_script(tmp_path, BENCH.format(options=options, restrict=restrict))
    assert (done.returncode, made.by) == (0, by), done.stderr
    assert done.stdout.splitlines() == ["mtp=2 context=512 err=0 us=1024.5",
                                        "mtp=1 context=4096 err=0 us=4096.5"]
    assert (tmp_path / "runs.txt").read_text().split() == ["run"] * runs
    with (tmp_path / "out.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["mtp", "context", "err", "us"],
                                          ["2", "512", "0", "1024.5"], ["1", "4096", "0", "4096.5"]]


def test_script_reads_a_benchmark_that_writes_json(tmp_path: Path) -> None:
    source, _, _ = BENCH.format(options=OPTIONS, restrict=BY_ARGUMENTS).partition("with open(\"out")
    made, done = run_script(tmp_path, source + 'json.dump({"rows": rows}, open("out.csv", "w"))\n')
    assert (done.returncode, made.by) == (0, "arguments"), done.stderr
    assert done.stdout.splitlines() == ["mtp=2 context=512 err=0 us=1024.5",
                                        "mtp=1 context=4096 err=0 us=4096.5"]


def test_script_without_shapes_prints_every_row(tmp_path: Path) -> None:
    _, done = run_script(tmp_path, BENCH.format(options="", restrict=""), ())
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 4


@pytest.mark.parametrize(("restrict", "part"), [
    ("rows = rows[:1]", "no row for {'mtp': '2', 'context': '512'}"),
    ("raise SystemExit(3)", ""), ("os._exit(0)", "wrote no out.csv"),
    ("rows = [{'mtp': 1, 'err': 0}]", "has no column context"),
])
def test_failing_script_reports_reason(tmp_path: Path, restrict: str, part: str) -> None:
    (tmp_path / "out.csv").write_text("mtp,context,err,us\n2,512,0,1\n1,4096,0,1\n")
    _, done = run_script(tmp_path, BENCH.format(options="", restrict=restrict))
    assert done.returncode != 0 and part in done.stderr
