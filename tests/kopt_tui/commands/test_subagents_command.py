"""Tests `kopt subagents`: list, show, check, harness and render."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.campaign.setup import create
from tests.support import repos
from tests.support.agents import harness_case
from tests.support.engines import campaigns
from tests.support.paths import ROOT
from tests.support.programs.command_line import answer, kopt

GENERAL = "general-kernel-optimization"


def own(folder: Path, definition: str, prompt: str = "Work on {{ op }}.\n") -> Path:
    path = folder / "subagents" / "own"
    path.mkdir(parents=True)
    (path / "SUBAGENT.yaml").write_text(definition)
    (path / "SYSTEM_PROMPT.md").write_text(prompt)
    return path


def test_list_has_the_projects_subagents_and_the_built_in_ones(tmp_path: Path) -> None:
    own(tmp_path, "{name: own, description: of this project}")
    listed = {entry["name"]: entry for entry in answer(
        kopt("subagents", "--json", cwd=tmp_path))["subagents"]}
    assert listed["own"]["description"] == "of this project" and GENERAL in listed
    assert "of this project" in kopt("subagents", "list", cwd=tmp_path).stdout
    source = str(ROOT / "examples" / "softmax_triton" / "kernel.py")
    names = [entry["name"] for entry in answer(kopt(
        "subagents", "list", "--source", source, "--json", cwd=tmp_path))["subagents"]]
    assert "own" in names and "translate-triton-to-tilelang" in names
    assert "translate-cuda-to-triton" not in names


def test_show_prints_limits_and_the_template(tmp_path: Path) -> None:
    own(tmp_path, "{name: own, description: d, agent: {step_limit: 7, cost_limit_usd: 2}}")
    shown = kopt("subagents", "show", "own", cwd=tmp_path)
    assert shown.returncode == 0
    assert "steps        7" in shown.stdout and "2 USD" in shown.stdout
    assert "Work on {{ op }}." in shown.stdout
    assert answer(kopt("subagents", "show", "own", "--json", cwd=tmp_path))["step_limit"] == 7
    assert kopt("subagents", "show", "ow", cwd=tmp_path).returncode == 2


def test_check_prints_one_line_for_each_bad_file(tmp_path: Path) -> None:
    assert answer(kopt("subagents", "check", "--json", cwd=tmp_path))["problems"] == []
    path = own(tmp_path, "{name: own, description: d}", "{{ unknown_fact }}")
    checked = kopt("subagents", "check", cwd=tmp_path)
    assert checked.returncode == 1
    [line] = checked.stdout.splitlines()
    assert str(path) in line and "unknown_fact" in line
    (path / "SUBAGENT.yaml").write_text("{name: own, steps: 3}")
    [line] = kopt("subagents", "check", cwd=tmp_path).stdout.splitlines()
    assert "SUBAGENT.yaml:1: unknown key 'steps'" in line


@pytest.mark.slow
def test_harness_writes_a_manifest_that_evaluate_accepts(tmp_path: Path) -> None:
    project = harness_case.project(tmp_path)
    written = kopt("subagents", "harness", "rmsnorm.c:rmsnorm", "--traced", "calls.csv", "--agent",
                   f"{harness_case.agent(tmp_path)} wrong-reference,good PASS", "--json",
                   cwd=project)
    assert answer(written)["record"]["attempts"] == 2
    assert kopt("manifest", cwd=project).returncode == 0
    again = kopt("subagents", "harness", "rmsnorm.c", "--agent", "true", cwd=project)
    assert again.returncode == 1 and "--force overwrites it" in again.stderr


@pytest.mark.slow
def test_harness_without_an_agent_checks_the_existing_harness(tmp_path: Path) -> None:
    project = harness_case.project(tmp_path)
    assert kopt("subagents", "harness", "rmsnorm.c", cwd=project).returncode == 1
    for wrong in (["nothing.c"], ["../p.c"], ["rmsnorm.c", "--traced", "/etc/passwd"]):
        refused = kopt("subagents", "harness", *wrong, cwd=project)
        assert refused.returncode == 2 and "is not a file of the project" in refused.stderr
    (project / "kopt_harness.py").write_text(harness_case.spoiled("absolute"))
    checked = kopt("subagents", "harness", "rmsnorm.c", cwd=project)
    assert checked.returncode == 1 and "outside the work folder" in checked.stdout
    (project / "kopt_harness.py").write_text(harness_case.HARNESS)
    checked = answer(kopt("subagents", "harness", "rmsnorm.c", "--traced", "calls.csv", "--json",
                          cwd=project))
    assert checked["passed"] and not checked["fault"]


@pytest.mark.slow
def test_render_prints_what_a_command_of_the_campaign_gets(tmp_path: Path) -> None:
    name = "general-kernel-optimization"
    show = "sh -c 'cat {prompt}; echo >> scale.c'"
    setup = campaigns.create(tmp_path, pool={
        "slots": 1, "mode": "fixed", "backends": ["cli"], "cli": [{"name": "a", "command": show}]})
    own(tmp_path / "p", f"{{name: {name}, description: d}}",
        "Tune {{ op }}: {{ entry }} in {{ source }} ({{ edit[0] }}) on {{ device }}.\n")
    rendered = kopt("subagents", "render", name, setup.id, workspace=setup.workspace)
    assert rendered.stdout.startswith("Tune scale: scale in scale.c (scale.c) on ")
    campaigns.run(setup)
    logs = [path.read_text() for path in setup.folder.path.rglob("worker-1.log")]
    assert logs and all(log.startswith(rendered.stdout) for log in logs)
    before = kopt("subagents", "render", name, "--manifest", str(tmp_path / "p" / "manifest.yaml"),
                  "--json")
    stated = answer(before)
    assert (stated.keys(), stated["name"], stated["system_prompt"]) == (
        {"name", "system_prompt", "task"}, name, rendered.stdout)
    assert "One hypothesis for this attempt: (the slot's hypothesis)" in stated["task"]
    after = kopt("subagents", "render", name, setup.id, workspace=setup.workspace)
    assert "its task is that of candidate" in after.stderr
    assert after.stdout in logs and "No hypothesis is given" in after.stdout


def test_render_before_a_campaign_has_the_rules_of_the_translation(tmp_path: Path) -> None:
    example = ROOT / "examples" / "softmax_triton"
    files = {path.name: path.read_text() for path in example.iterdir() if path.is_file()}
    repos.project(tmp_path / "p", files)
    manifest = str(tmp_path / "p" / "manifest.yaml")
    task = answer(kopt("subagents", "render", "translate-triton-to-tilelang", "--manifest",
                       manifest, "--json"))["task"]
    assert "## Translation to TileLang" in task and "Name the new kernel `softmax_tilelang`" in task
    assert answer(kopt("subagents", "render", "planner", "--manifest", manifest,
                       "--json"))["task"] == ""


def test_a_campaign_with_agents_warns_of_bad_subagents(tmp_path: Path) -> None:
    manifest = campaigns.project(tmp_path / "p", pool={
        "slots": 1, "backends": ["cli"], "cli": [{"name": "a", "command": "cat {prompt}"}]})
    own(tmp_path / "p", "{name: own, steps: 3}")
    setup = create(tmp_path / "w", manifest)
    with campaigns.reading(setup) as reader:
        [warning] = [event for event in reader.events_of(setup.id, "warning")
                     if b"unknown key 'steps'" in event.payload]
    assert b"SUBAGENT.yaml:1" in warning.payload
