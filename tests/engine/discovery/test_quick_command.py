"""A proposed quick command is written into the manifest unless it already has one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.discovery.classes import (
    class_baseline,
    proposal,
    quick_script,
    representative,
)
from engine.discovery.classes.proposal import ClassProposal
from engine.manifest import load, schema
from harness.benchmark.runs import run_pairs
from harness.benchmark.runs.result_table import ResultTable, judge_table
from harness.benchmark.runs.workdir import CommandEnvironment, WorkingCopy
from harness.benchmark.spec.metric_units import RowCost
from harness.benchmark.verdict import benchmark_rows
from harness.errors import InputError
from harness.isolation import device_lock
from harness.timing.plan import Plan
from tests.support.benchmarks.quick_script_case import BENCH, BY_ARGUMENTS, OPTIONS, SHAPES, TARGET


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


def test_edit_leaves_the_other_text_unchanged() -> None:
    text = class_baseline.edit_manifest(TEXT, representative_shapes=({"mtp": 4},),
                                        quick_command="python q.py")
    assert text == TEXT.replace("  - {mtp: 1}\n  - {mtp: 2}\n", "- {mtp: 4}\n") + \
        "quick_command: python q.py\n"


def test_edit_replaces_a_whole_field() -> None:
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
def test_manifest_of_another_layout_can_be_edited(text: str) -> None:
    assert load.parse(text, "m").max_iterations == 5
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
    """Return the classes for a baseline whose rows with block_size 1024 and mtp 1 are slow."""
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


def test_script_that_runs_the_full_benchmark_is_no_quick_command(tmp_path: Path) -> None:
    file = tmp_path / "manifest.yaml"
    file.write_text("target_op: pa\ntarget: {kind: command, csv: out.csv, check: err == 0, "
                    "metrics: [us]}\nbenchmark_command: make bench\nedit: [k.c]\n")
    made = class_baseline.write_classes(tmp_path, file, proposed(""))
    assert made.quick_command == "" and made.representative_shapes
    assert (tmp_path / quick_script.NAME).is_file()


def test_fields_that_a_person_wrote_stay(tmp_path: Path) -> None:
    file = tmp_path / "manifest.yaml"
    file.write_text(TEXT.replace("  metrics: [us]\n", "  metrics: [us]\n  configs: [mtp]\n"
                                 "  core: [mtp=2]\n"
                                 "  row_command: python own.py {mtp}\n")
                    + "quick_command: python bench.py --quick\n")
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
        table, _ = side.benchmark(target.quick, held)
    assert table.rows == (("2", "512", "0", "1024.5"), ("1", "4096", "0", "4096.5"))
