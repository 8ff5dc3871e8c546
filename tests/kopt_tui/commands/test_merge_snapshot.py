"""Tests the merge of a campaign that started from uncommitted files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.journal.write import Writer
from engine.repository import git
from engine.repository.campaign_repo import CampaignRepo
from kopt_tui.main import main
from tests.support import repos
from tests.support.engines import campaigns


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """Make a project with an uncommitted change of its kernel; return the uncommitted manifest."""
    manifest = campaigns.project(tmp_path / "p", kernel=campaigns.KERNEL.replace("2.0f", "9.0f"))
    repos.git(tmp_path / "p", "rm", "-q", "--cached", "task.yaml", "manifest.yaml")
    repos.git(tmp_path / "p", "commit", "-q", "-m", "without a task")
    (tmp_path / "p" / "scale.c").write_text(campaigns.KERNEL)
    return manifest


def kept(manifest: Path, workspace: Path) -> Setup:
    """Make a campaign that has kept one commit."""
    setup = campaigns.campaigns.create(workspace, manifest)
    keep(setup, campaigns.FASTER)
    return setup


def keep(setup: Setup, text: str) -> None:
    """Have a campaign keep another commit."""
    repo: CampaignRepo = setup.repo
    tree = repo.worktree("s", repo.best)
    (tree / "scale.c").write_text(text)
    commit = repo.commit(repo.best, repo.capture(tree, repo.best).tree, "Compute it once")
    assert repo.advance(repo.best, commit)
    repo.remove_all()
    writer = Writer(setup.workspace)
    writer.set_campaign(setup.id, kind="test", payload={}, best_commit=commit, state="finished")
    writer.close()


def test_gain_is_written_to_files_that_are_still_uncommitted(
        kernel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setup, project = kept(kernel, tmp_path / "w"), tmp_path / "p"
    head = repos.git(project, "rev-parse", "HEAD")
    assert main(["merge", setup.id, "--workspace", str(tmp_path / "w")]) == 0
    assert (project / "scale.c").read_text() == campaigns.FASTER
    assert repos.git(project, "rev-parse", "HEAD") == head
    assert "applied" in (printed := capsys.readouterr().out) and "scale.c" in printed
    assert "files here were changed but not committed when the campaign started, and still are" \
        in printed


@pytest.mark.parametrize("form", ["branch", "squash"])
def test_gain_becomes_commits_if_the_files_were_committed_meanwhile(
        form: str, kernel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setup, project = kept(kernel, tmp_path / "w"), tmp_path / "p"
    head = repos.commit(project, {"other.txt": "later work\n"}, "all of it")
    assert main(["merge", setup.id, "--as", form, "--workspace", str(tmp_path / "w")]) == 0
    assert (project / "scale.c").read_text() == campaigns.FASTER
    assert repos.git(project, "rev-parse", "HEAD~1") == head
    assert repos.git(project, "status", "--porcelain") == ""
    for again in ("branch", "squash"):
        assert main(["merge", setup.id, "--as", again, "--workspace", str(tmp_path / "w")]) == 1
        assert "the result is already in this branch" in capsys.readouterr().err


def test_conflict_changes_nothing(kernel: Path, tmp_path: Path,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    setup, project = kept(kernel, tmp_path / "w"), tmp_path / "p"
    text = campaigns.KERNEL.replace("PASSES 16", "PASSES 8")
    (project / "scale.c").write_text(text)
    for commit in (False, True):
        if commit:
            repos.commit(project, {}, "mine")
        before = repos.git(project, "rev-parse", "HEAD")
        assert main(["merge", setup.id, "--workspace", str(tmp_path / "w")]) == 1
        assert "nothing was changed" in capsys.readouterr().err
        assert (project / "scale.c").read_text() == text
        assert repos.git(project, "rev-parse", "HEAD") == before


def test_merge_without_a_git_identity_names_the_settings_and_takes_an_inherited_one(
        kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    setup, project = kept(kernel, tmp_path / "w"), tmp_path / "p"
    head = repos.commit(project, {}, "all of it")
    monkeypatch.setattr(git, "CLEARED", {})
    for name in [name for name in os.environ if name.endswith(("_NAME", "_EMAIL", "EMAIL"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    repos.git(project, "config", "user.useConfigOnly", "true")  # as where git guesses no address
    assert main(["merge", setup.id, "--workspace", str(tmp_path / "w")]) == 3
    assert "git config --global user.name NAME, and user.email ADDRESS" in capsys.readouterr().err
    assert repos.git(project, "rev-parse", "HEAD") == head
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Ann")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "ann@example.invalid")
    assert main(["merge", setup.id, "--workspace", str(tmp_path / "w")]) == 0
    assert repos.git(project, "log", "-1", "--format=%cn") == "Ann"


@pytest.mark.parametrize("is_repository", [False, True])
def test_later_result_is_applied_onto_an_earlier_one(
        is_repository: bool, kernel: Path, tmp_path: Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    """The first merge has written it into the files without a commit."""
    source = tmp_path / "p" / "scale.c"
    if not is_repository:
        shutil.rmtree(tmp_path / "p" / ".git")
    setup = kept(kernel, tmp_path / "w")
    merge = ["merge", setup.id, "--workspace", str(tmp_path / "w")]
    assert main(merge) == 0 and source.read_text() == campaigns.FASTER
    capsys.readouterr()
    assert main(merge) == 1
    assert "already applied: the files hold the result" in capsys.readouterr().err
    better = campaigns.FASTER.replace("PASSES 1 ", "PASSES 1L").replace("FORWARD 1", "FORWARD 2")
    keep(setup, better)
    source.write_text(campaigns.FASTER.replace("2.0f", "4.0f"))
    assert main(merge) == 1 and "nothing was changed" in capsys.readouterr().err
    source.write_text(campaigns.FASTER)
    assert main(merge) == 0 and source.read_text() == better
    source.write_text(campaigns.KERNEL)
    assert main(merge) == 0 and source.read_text() == better


@pytest.mark.parametrize("around", [False, True])
def test_folder_that_is_not_a_repository_gets_the_gain(around: bool, tmp_path: Path) -> None:
    """kopt makes no branch there, nor in a folder inside another repository."""
    place = tmp_path / "outer" / "kernels" if around else tmp_path / "p"
    manifest = campaigns.project(place)
    shutil.rmtree(place / ".git")
    if around:
        repos.git(tmp_path / "outer", "init", "-q")
    setup = kept(manifest, tmp_path / "w")
    assert main(["merge", setup.id, "--workspace", str(tmp_path / "w")]) == 0
    assert (place / "scale.c").read_text() == campaigns.FASTER
