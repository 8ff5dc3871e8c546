"""The example of a command target: its test, its table, its knobs, and patches with a worker."""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import subprocess
import sys
from difflib import ndiff
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from engine.campaign import setup as campaign
from engine.campaign.setup import Setup
from engine.discovery.classes import quick_script
from engine.journal.decoded.recorded import verdict_of
from engine.manifest import benchmark_target, load
from engine.split.class_preferences import ClassGroup
from engine.split.languages.c_language import C
from engine.split.languages.conditions import parse
from engine.split.specialise import split
from harness.benchmark.spec import table_rules
from harness.benchmark.spec.validate import check
from harness.call_trace import weights
from harness.formats import yaml_document
from harness.search.space import knobs
from harness.verdict import Value
from tests.support import repos
from tests.support.engines import campaigns
from tests.support.paths import ROOT
from tests.support.programs.command_line import answer, kopt

EXAMPLE = ROOT / "examples" / "paged_attention_c"
PATCHES = sorted(path.stem for path in (EXAMPLE / "patches").iterdir())
WRONG, RIGHT = "four-values-wrong", "four-values"
DIVIDES = "counted-pages"
SLOWER = ("compensated-products", "double-products", "exact-weights")
SOURCE = (EXAMPLE / "attention.c").read_text()


def run(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=folder, env={**os.environ, **env},
                          capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the example with others.c compiled and the kernel not."""
    copy = tmp_path_factory.mktemp("paged") / "project"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("*.so", "*.csv", "__pycache__"))
    subprocess.run(["cc", "-O1", "-fPIC", "-c", "others.c"], cwd=copy, check=True)
    return copy


def build(folder: Path, source: str) -> None:
    (folder / "attention.c").write_text(source)
    words = "cc -O1 -Wall -Wextra -Werror -shared -fPIC -o libattention.so attention.c others.o -lm"
    subprocess.run(words.split(), cwd=folder, check=True)


def work_on(folder: Path, source: str, prompt: str = "", **env: str) -> tuple[str, str]:
    """Run the worker on a source; return the changed source and what the worker printed."""
    (folder / "attention.c").write_text(source)
    (folder / "PROMPT.md").write_text(prompt)
    done = run(folder, "worker.py", "PROMPT.md", **env)
    assert done.returncode == 0, done.stderr
    return (folder / "attention.c").read_text(), done.stdout.strip()


def test_quick_benchmark_writes_a_row_per_class(folder: Path) -> None:
    spec = load.load(folder / "manifest.yaml")
    target = benchmark_target.command_target(spec)
    check(target)
    build(folder, SOURCE)
    done = run(folder, *target.quick_command.split()[1:])
    assert done.returncode == 0, done.stderr
    with (folder / target.csv).open(newline="") as file:
        rows = list(csv.DictReader(file))
    rule = table_rules.parse(target.check.rule)
    assert all(rule.passes(row[target.check.column]) for row in rows)
    assert {(row["mtp"], row["context"]) for row in rows} == {
        (mtp, context) for mtp in "148" for context in ("256", "2048")}
    assert {row["skew"] for row in rows} == {"0", "1"}
    named = {metric.name for metric in target.metrics}
    assert all(float(row[name]) > 0 for row in rows for name in named | set(target.ignore))
    assert set(rows[0]) - {target.check.column, *named, *target.ignore} == {
        "block_size", "head_size", "mtp", "context", "heads", "kv_heads", "seqs", "skew"}


def test_benchmark_runs_the_shapes_in_the_environment(folder: Path) -> None:
    """`quick_test_bench.py` passes the shapes by environment variables."""
    target = benchmark_target.command_target(load.load(folder / "manifest.yaml"))
    shapes = [{"mtp": "1", "context": "256", "head_size": "80"}, {"skew": "1", "mtp": "4"}]
    made = quick_script.make_script(target, shapes, (folder / "bench.py").read_text())
    assert made.by == "environment"
    build(folder, SOURCE)
    (folder / quick_script.NAME).write_text(made.text)
    done = run(folder, quick_script.NAME)
    assert done.returncode == 0, done.stderr
    with (folder / target.csv).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["mtp"], row["context"], row["skew"]) for row in rows] == [
        ("1", "256", "0"), ("4", "2048", "1")]
    assert len(done.stdout.splitlines()) == 2


def test_traced_calls_become_weights(folder: Path) -> None:
    """The command of the example's README: benchmark columns are arguments of a function."""
    build(folder, SOURCE)
    trace = answer(kopt("trace", str(folder / "manifest.yaml"), "--json", "--of",
                        "attention.py:paged_attention", "--", sys.executable, "generate.py",
                        cwd=folder))
    assert {(shape["shape"]["mtp"], shape["shape"]["context"]): shape["calls"]
            for shape in trace["shapes"]} == {("4", "2048"): 76, ("1", "256"): 28}
    assert trace["columns"] == ["mtp", "context"] and not trace["notes"]
    assert trace["weights"] == "calls.csv"
    read = weights.parse((folder / "calls.csv").read_bytes(), "calls.csv")
    assert [shape.cells for shape in read.shapes] == [("4", "2048"), ("1", "256")]


def test_only_the_kernel_is_editable(folder: Path) -> None:
    spec = load.load(EXAMPLE / "manifest.yaml")
    files = [str(path.relative_to(EXAMPLE)) for path in EXAMPLE.rglob("*") if path.is_file()]
    sealed = benchmark_target.sealed_target(spec, files).frozen
    assert set(sealed) >= {"attention.py", "bench.py", "others.c", "test_attention.py"}
    assert "attention.c" not in sealed and benchmark_target.editable_globs(spec) == ("attention.c",)


@pytest.mark.parametrize("config", [
    {"ROWS": 4, "LANES": 16},
    {"ROWS": 8, "LANES": 4, "ONLINE": 1, "TILE": 4},
    pytest.param({"ROWS": 1, "LANES": 32, "ONLINE": 1, "TILE": 256}, marks=pytest.mark.slow),
], ids=str)
def test_configuration_of_the_knobs_is_correct(folder: Path, config: dict[str, Value]) -> None:
    declared = knobs.find(SOURCE, language="c")
    checked = knobs.check(declared, config, knobs.requirements(SOURCE, declared))
    assert not checked.faults and not checked.dropped
    build(folder, knobs.apply(SOURCE, config, language="c"))
    done = run(folder, "test_attention.py")
    assert (done.returncode, done.stdout) == (0, "all right\n")


@pytest.mark.parametrize("name", [
    name if name in (WRONG, RIGHT) else pytest.param(name, marks=pytest.mark.slow)
    for name in PATCHES])
def test_only_the_patch_for_repair_is_incorrect(folder: Path, name: str) -> None:
    assert {WRONG, RIGHT, DIVIDES, *SLOWER} == set(PATCHES)
    source, _ = work_on(folder, SOURCE, PAGED_STEP=name)
    build(folder, source)
    done = run(folder, "test_attention.py")
    assert done.returncode == (name == WRONG), done.stdout
    assert ("paged_attention: " in done.stdout) == (name == WRONG)
    assert "naive_attention: " not in done.stdout


def test_benchmark_reports_errors_per_class(folder: Path) -> None:
    source, _ = work_on(folder, SOURCE, PAGED_STEP=WRONG)
    build(folder, source)
    assert run(folder, "bench.py", "--quick").returncode == 0
    with (folder / "attention.csv").open(newline="") as file:
        wrong = {(row["mtp"], row["context"]): int(row["err_paged"])
                 for row in csv.DictReader(file)}
    assert wrong["1", "2048"] == 0  # this context leaves no remainder
    assert wrong["1", "256"] > 0 and wrong["4", "2048"] > 0


def test_git_and_worker_apply_patches_alike(folder: Path, tmp_path: Path) -> None:
    project = repos.project(tmp_path / "project", {"attention.c": SOURCE})
    for name in PATCHES:
        repos.git(project, "apply", str(EXAMPLE / "patches" / f"{name}.patch"))
        changed, output = work_on(folder, SOURCE, PAGED_STEP=name)
        assert (project / "attention.c").read_text() == changed != SOURCE
        assert output == f"took {name}"
        repos.git(project, "checkout", "-q", ".")


def test_worker_continues_from_the_current_source(folder: Path) -> None:
    wrong, output = work_on(folder, SOURCE, "# Make it faster\n")
    assert output == f"took {WRONG}"
    right, output = work_on(folder, wrong, "## Repair, attempt 1 of 3\n")
    assert output == f"took {RIGHT}" and right == work_on(folder, SOURCE, PAGED_STEP=RIGHT)[0]
    steps = (*SLOWER, f"{SLOWER[0]}+{SLOWER[2]}", f"{SLOWER[1]}+{SLOWER[2]}", SLOWER[0])
    for source in (right, SOURCE, knobs.apply(right, {"ROWS": 4, "LANES": 16}, language="c")):
        taken = [work_on(folder, source, f"- This is round {n} of the campaign.\n")
                 for n in range(3, 9)]
        assert [output for _, output in taken] == [f"took {name}" for name in steps]
        assert len({changed for changed, _ in taken}) == len(taken) - 1


@pytest.mark.parametrize(("name", "lines"), [("compensated-products", 18), ("double-products", 8),
                                             ("exact-weights", 1)])
def test_worker_changes_every_specialised_kernel(folder: Path, name: str, lines: int) -> None:
    group = ClassGroup(config={"ROWS": 8, "LANES": 16}, classes=("mtp=8",), points=({"mtp": 8},),
                       gain=0.2, condition=parse("mtp >= 8"))
    source = split(SOURCE, [group], {"mtp": "mtp"}, start={"ROWS": 1, "LANES": 1})
    assert "void products_v1(" in source
    changed, output = work_on(folder, source, PAGED_STEP=name)
    assert output == f"took {name}"
    assert len([line for line in ndiff(source.splitlines(), changed.splitlines())
                if line.startswith("+ ")]) == lines
    build(folder, changed)
    assert run(folder, "test_attention.py").returncode == 0


def test_worker_reports_text_it_cannot_replace(folder: Path) -> None:
    changed = SOURCE.replace("float sums[ROWS][LANES]", "float  sums[ROWS][LANES]")
    (folder / "attention.c").write_text(changed)
    done = run(folder, "worker.py", PAGED_STEP="double-products")
    assert done.returncode == 1 and done.stderr.startswith("attention.c does not contain ")
    assert (folder / "attention.c").read_text() == changed


def campaign_on(root: Path, **fields: Any) -> Path:
    """Make a repository of the example, with other fields in its manifest; return the manifest."""
    files = {str(path.relative_to(EXAMPLE)): path.read_text() for path in EXAMPLE.rglob("*")
             if path.suffix in (".c", ".py", ".patch")}
    spec = yaml_document.read(EXAMPLE / "manifest.yaml").value
    repos.project(root, {**files, "manifest.yaml": yaml_document.dump({**spec, **fields})})
    return root / "manifest.yaml"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_patch_gets_its_verdict(tmp_path: Path) -> None:
    path = campaign_on(tmp_path / "p", budget={"pairs": 3})
    verdicts = {}
    for name in (WRONG, RIGHT):
        done = subprocess.run([sys.executable, "-m", "kopt_tui.main", "evaluate", str(path),
                               "--json", "--patch", str(EXAMPLE / "patches" / f"{name}.patch")],
                              capture_output=True, timeout=400, check=False, cwd=ROOT)
        verdicts[name] = json.loads(done.stdout)
    assert "tests fail" in verdicts[WRONG]["rejected_reason"] and not verdicts[WRONG]["rows"]
    assert (
        verdicts[RIGHT]["valid"] and verdicts[RIGHT]["correct"] and verdicts[RIGHT]["speedup"] > 1.1
    )
    assert len(verdicts[RIGHT]["rows"]) == 6


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(2400)
def test_shipped_campaign_splits_repairs_and_stops(tmp_path: Path) -> None:
    """Classes that diverge, a split that is kept, a repair, regressions counted, a clean stop."""
    path = campaign_on(tmp_path / "p")
    shipped = (EXAMPLE / "manifest.yaml").read_text()
    path.write_text(shipped)
    repos.git(path.parent, "commit", "-aqm", "as shipped")
    setup = campaign.create(tmp_path / "w", path)
    campaigns.run(setup, limit_s=2300)
    check_campaign(setup)


def check_campaign(setup: Setup) -> None:
    ended = campaigns.campaign(setup)
    assert (ended.state, ended.reason) == ("finished", "2 consecutive measured regressions")
    assert (ended.speedup or 0) > 1.1
    slot_of = {candidate.id: candidate.slot for candidate in campaigns.candidates(setup)}
    with campaigns.reading(setup) as reader:
        made = [
            (decision.kind, slot_of[decision.candidate]) for decision in reader.decisions(setup.id)
        ]
        rounds = [round.outcome for round in reader.rounds(setup.id)]
        [end_to_end] = reader.events_of(setup.id, "e2e")
        rows = [row for verdict in reader.verdicts(setup.id) if verdict.purpose == "verify"
                for row in verdict_of(verdict).rows]
    assert ("repair", "planned-1") in made
    assert rounds[:2] == ["baseline", "keep"] and rounds[-2:] == ["regression"] * 2
    assert json.loads(end_to_end.payload)["message"].startswith("end to end ")
    told = (setup.folder.path / "performance.md").read_text()
    assert "Stop Summary" in told and "consecutive measured regressions" in told
    kept = [candidate.hypothesis for candidate in campaigns.candidates(setup, "kept")]
    is_split = any(hypothesis.startswith("a specialised kernel where ")
               or hypothesis.endswith("only where it gains") for hypothesis in kept)
    noise = median(row.stderr * math.sqrt(row.pairs) for row in rows if row.stderr is not None)
    assert is_split, f"no split was kept of {kept}; two runs of the same differ by {noise:.0%} here"
    _, (block, *_) = C().read(
        setup.repo.read(setup.repo.best, "attention.c").decode())
    sizes = {"block_size": 16, "head_size": 64, "heads": 4, "kv_heads": 2, "seqs": 1}
    taken = {block.kernel_for({**sizes, "mtp": mtp, "context": context})
             for mtp in (1, 4, 8) for context in (256, 2048)}
    assert block.entry == "paged_attention" and len(taken) > 1
