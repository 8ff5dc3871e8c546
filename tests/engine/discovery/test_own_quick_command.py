"""The rows that the user's own quick command measures become shapes in the manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.campaign import setup as campaign
from engine.campaign.setup import Setup
from engine.discovery.classes import class_baseline, proposal, quick_script
from engine.manifest import load
from harness.benchmark.runs.result_table import ResultTable, TableReading, judge_table
from harness.benchmark.runs.run_pairs import BrokenIncumbent
from harness.benchmark.spec.command_target import CheckColumn, CommandTarget, Metric
from harness.benchmark.spec.metric_units import RowCost
from harness.formats import yaml_document
from tests.support import repos
from tests.support.benchmarks import benchmark_case

QUICK = "python bench.py --quick"
BENCH = """\
import csv, random, sys

QUICK = [(1, 512), (4, 16384)]
ALL = [(mtp, context) for mtp in (1, 2, 4) for context in (512, 1024, 4096, 16384)]
with open("bench.csv", "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["mtp", "context", "err", "us"])
    for mtp, context in QUICK if "--quick" in sys.argv else ALL:
        us = context * (4 if mtp == 1 else 1) * random.uniform(0.995, 1.005)
        writer.writerow([mtp, context, 0, us])
if "--quick" in sys.argv:
    {after}
"""


def create_campaign(folder: Path, *, after: str = "pass", **fields: object) -> Setup:
    target = {**benchmark_case.MANIFEST["target"], "metrics": ["us"]}
    repos.project(folder / "p", {
        "kernel.py": benchmark_case.KERNEL, "bench.py": BENCH.format(after=after),
        "manifest.yaml": yaml_document.dump({**benchmark_case.MANIFEST, "target": target,
                                       "quick_command": QUICK, **fields})})
    return campaign.create(folder / "w", folder / "p" / "manifest.yaml")


def test_rows_of_the_users_quick_command_become_shapes(tmp_path: Path) -> None:
    setup = create_campaign(tmp_path)
    made, found = class_baseline.find_classes(setup, setup.device)
    assert made.manifest.representative_shapes == ({"mtp": 1, "context": 512},
                                                   {"mtp": 4, "context": 16384})
    assert made.manifest.quick_command == QUICK and class_baseline.is_settled(made)
    assert "2 representative shapes, as the quick command measures them" in found.description
    script = (setup.folder.path / quick_script.NAME).read_text()
    assert '{"mtp": "1", "context": "512"},' in script and script.count('"mtp": ') == 2


def test_shapes_in_the_manifest_stay(tmp_path: Path) -> None:
    setup = create_campaign(tmp_path, representative_shapes=[{"mtp": 2}])
    made, _ = class_baseline.find_classes(setup, setup.device)
    assert made.manifest.representative_shapes == ({"mtp": 2},)


def test_failing_quick_command_ends_the_search_for_classes(tmp_path: Path) -> None:
    setup = create_campaign(tmp_path, after="raise SystemExit(5)")
    with pytest.raises(BrokenIncumbent, match="the incumbent's own benchmark: exited with 5"):
        class_baseline.find_classes(setup, setup.device)


TARGET = CommandTarget(op="pa", command="python bench.py", csv="out.csv", quick_command=QUICK,
                       metrics=(Metric(name="us"),), check=CheckColumn(column="err", rule="== 0"))
ROWS = [(str(mtp), str(context), "0", str(context * mtp)) for mtp in (1, 4)
        for context in (512, 4096, 16384)]
TEXT = ("target_op: pa\ntarget: {kind: command, csv: out.csv, check: err == 0, metrics: [us]}\n"
        f"benchmark_command: python bench.py\nquick_command: {QUICK}\nedit: [k.c]\n")


def reading() -> TableReading:
    table = ResultTable(columns=("mtp", "context", "err", "us"), rows=tuple(ROWS))
    return judge_table(table, TARGET, RowCost(TARGET), csv="out.csv")


@pytest.mark.parametrize("quick_table", [
    None, ResultTable(columns=("mtp", "err", "us"), rows=(("1", "0", "5"),))])
def test_missing_or_unmatched_quick_rows_give_no_shapes(quick_table: ResultTable | None,
                                                        tmp_path: Path) -> None:
    file = tmp_path / "manifest.yaml"
    file.write_text(TEXT)
    found = proposal.propose_classes(TARGET, [reading()], quick_table=quick_table)
    made = class_baseline.write_classes(tmp_path, file, found)
    assert (made.representative_shapes, made.quick_command) == (None, QUICK)
    assert made.target.configs and made.target.core
    assert not (tmp_path / quick_script.NAME).exists()
    assert load.load(file) == made


def test_repeated_quick_row_is_listed_once() -> None:
    quick_table = ResultTable(
        columns=("us", "context", "mtp"), rows=(("5", "512", "1"), ("6", "512", "1"))
    )
    found = proposal.propose_classes(TARGET, [reading()], quick_table=quick_table)
    assert found.shapes == ({"mtp": 1, "context": 512},)
