"""The command that measures one row is found in the benchmark's source, and it runs."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from engine.campaign import setup as campaign
from engine.discovery.classes import class_baseline, quick_script
from engine.manifest import benchmark_target
from harness.formats import shell_command, yaml_document
from tests.support import repos
from tests.support.benchmarks import benchmark_case

HEAD = "import argparse, csv, json, os\nimport kernel\n"
ARGUMENTS = """\
parser = argparse.ArgumentParser()
parser.add_argument("--kind")
parser.add_argument("--m", type=int)
args = parser.parse_args()
def wanted(row):
    return args.m in (None, row["m"]) and args.kind in (None, row["kind"])
"""
ENVIRONMENT = """\
shapes = json.loads(os.environ.get("KOPT_SHAPES", "[]"))
def wanted(row):
    return not shapes or any(all(str(row[k]) == s[k] for k in s) for s in shapes)
"""
WRITE = """\
rows = [dict(m=m, kind=kind, err=kernel.err(m), us=m * 1.5)
        for m in (64, 256) for kind in ("a", "it's {two} words")]
with open("bench.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(filter(wanted, rows))
"""
SHAPE = {"m": "256", "kind": "it's {two} words"}
TARGET = replace(benchmark_case.TARGET, metrics=(replace(benchmark_case.TARGET.metrics[0],
                                                         name="us"),))


@pytest.mark.parametrize(("restrict", "command"), [
    (ARGUMENTS, "python bench.py --m {m} --kind {kind}"),
    (ENVIRONMENT, """KOPT_SHAPES='[{{"m": "{m}", "kind": "{kind}"}}]' python bench.py"""),
    ("def wanted(row):\n    return True\n", "")])
def test_row_command_measures_exactly_its_row(restrict: str, command: str, tmp_path: Path) -> None:
    source = HEAD + restrict + WRITE
    made = quick_script.make_script(TARGET, [SHAPE], source)
    assert made.row_command == command
    if not command:
        return
    (tmp_path / "bench.py").write_text(source)
    (tmp_path / "kernel.py").write_text(benchmark_case.KERNEL)
    variables, argv = shell_command.split(shell_command.fill(command, SHAPE))
    subprocess.run([sys.executable, *argv[1:]], cwd=tmp_path, env={**os.environ, **variables},
                   check=True, timeout=60)
    with (tmp_path / "bench.csv").open(newline="") as file:
        assert [{key: row[key] for key in SHAPE} for row in csv.DictReader(file)] == [SHAPE]


@pytest.mark.parametrize("command", ["cd . && python bench.py", "python bench.py > log"])
def test_benchmark_that_needs_a_shell_gets_no_row_command(command: str) -> None:
    made = quick_script.make_script(replace(TARGET, command=command), [SHAPE], HEAD + ENVIRONMENT)
    assert made.row_command == ""


def test_campaign_finds_its_row_command(tmp_path: Path) -> None:
    fields = {**benchmark_case.MANIFEST, "target": {
        **benchmark_case.MANIFEST["target"], "metrics": ["us"]}}
    repos.project(tmp_path / "p", {
        "kernel.py": benchmark_case.KERNEL, "bench.py": HEAD + ARGUMENTS + WRITE,
        "manifest.yaml": yaml_document.dump(fields)})
    setup = campaign.create(tmp_path / "w", tmp_path / "p" / "manifest.yaml")
    _, found = class_baseline.find_classes(setup, setup.device)
    again = class_baseline.write_classes(setup.folder.path, setup.folder.manifest, found)
    assert again.target.row_command == "python bench.py --m {m} --kind {kind}"
    assert benchmark_target.command_target(again).row_command == again.target.row_command
    edited = msgspec.structs.replace(again.target, row_command="python own.py {m}")
    text = class_baseline.edit_manifest(setup.folder.manifest.read_text(), target=edited)
    setup.folder.manifest.write_text(text)
    kept = class_baseline.write_classes(setup.folder.path, setup.folder.manifest, found)
    assert kept.target.row_command == "python own.py {m}"
