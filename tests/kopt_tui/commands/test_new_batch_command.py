"""Tests batches of PyTorch modules: `kopt new FOLDER --each` and `kopt run FOLDER --each`."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.journal.write import Writer
from engine.manifest import load
from kopt_tui.cli import batch_runs
from tests.kopt_tui.commands.test_new_module_command import PROBLEM
from tests.support.dashboards import samples
from tests.support.programs.command_line import answer, error_text, kopt


@pytest.fixture(scope="module")
def level(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("level")
    (folder / "2_Linear.py").write_text(PROBLEM)
    (folder / "10_Broken.py").write_text(PROBLEM.replace("self.linear(x)", "self.missing(x)"))
    (folder / "helper.py").write_text("x = 1\n")
    done = kopt("new", str(folder), "--each", "--approval", "review")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].split()[:2] == ["2_Linear.py", "new"]
    assert lines[2].split()[:2] == ["10_Broken.py", "failed"] and "'missing'" in lines[2]
    assert len(lines) == 5 and "--agent 'my-agent" in lines[4]
    return folder


@pytest.mark.slow
def test_each_module_gets_its_own_task_and_manifest(level: Path) -> None:
    manifest = load.load(level / "kopt_task/2_Linear/manifest.yaml")
    assert Path(manifest.project) == level and manifest.approval == "review"
    assert manifest.target.task == "kopt_task/2_Linear/task.yaml"


@pytest.mark.slow
def test_existing_manifests_are_kept(level: Path) -> None:
    done = kopt("new", str(level), "--each", "--json")
    assert answer(done, 1)["files"][0] == {
        "file": "2_Linear.py", "result": "there", "detail": "kopt_task/2_Linear/manifest.yaml"}


def test_batch_runs_only_campaigns_that_have_not_ended_and_prints_one_table(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    level = tmp_path / "level"
    path = level / "kopt_task/2_Linear/manifest.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("target_op: linear\nproject: ../..\n"
                    "target: {kind: kernel, task: kopt_task/2_Linear/task.yaml}\n")
    ran: list[str] = []

    def finish(name: str) -> None:
        ran.append(name)
        folder = tmp_path / "linear_1"
        folder.mkdir()
        (folder / "manifest.yaml").write_text(path.read_text().replace(
            "project: ../..", f"project: {level}"))
        writer = Writer(tmp_path)
        writer.add_campaign(samples.campaign("linear_1", path=str(folder), project=str(level),
                                             state="finished", reason="max_iterations reached"))
        writer.close()

    assert batch_runs.run_each(tmp_path, level, finish) == 0
    assert "max_iterations reached" in capsys.readouterr().out
    assert batch_runs.run_each(tmp_path, level, finish) == 0
    assert ran == [str(path)]
    assert "1 campaign had already ended; --new starts new ones" in capsys.readouterr().out
    batch_runs.run_each(tmp_path, level, ran.append, again=True)
    assert ran == [str(path), str(path)]


def test_folder_without_manifests_names_the_command_that_writes_them(tmp_path: Path) -> None:
    done = kopt("run", str(tmp_path), "--each", workspace=tmp_path)
    assert done.returncode == 2 and f"kopt new {tmp_path} --each writes them" in error_text(done)
