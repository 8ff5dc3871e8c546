"""GitPython starts git for the engine: no setting is inherited, no process is left running."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from engine.repository import git
from engine.repository.campaign_repo import CampaignRepo
from engine.repository.git import Git, GitFailed, locate
from harness.errors import EnvironmentFault
from tests.support import repos
from tests.support.paths import ROOT


@pytest.fixture
def user(tmp_path: Path) -> Path:
    return repos.project(tmp_path / "user")


def children() -> set[str]:
    return {child for task in Path("/proc/self/task").iterdir()
            for child in (task / "children").read_text().split()}


def test_no_process_is_left(user: Path, tmp_path: Path) -> None:
    before = children()
    repo = CampaignRepo.create(tmp_path / "campaign", "rms", user)
    tree = repo.worktree("s", repo.base)
    (tree / "kernel.c").write_text("int x;\n")
    repo.commit(repo.base, repo.capture(tree, repo.base).tree, "faster")
    with pytest.raises(GitFailed):
        repo.git.run("cat-file", "blob", "0" * 40)
    assert children() <= before


def test_command_past_time_limit_is_killed(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = children()
    monkeypatch.setattr(git, "TIMEOUT_S", 0.3)
    with pytest.raises(EnvironmentFault, match="took longer"):
        Git(user / ".git").run("-c", "alias.wait=!sleep 60", "wait")
    assert children() <= before


def test_inherited_variables_are_cleared_except_exec_path(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = repos.git(user, "--exec-path")
    monkeypatch.setattr(git, "CLEARED", {})
    monkeypatch.setenv("GIT_EXEC_PATH", place)
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", "/nonexistent")
    assert Git(user / ".git").find("HEAD") == repos.git(user, "rev-parse", "HEAD")
    assert {name for name in os.environ if name.startswith("GIT_")} == {"GIT_EXEC_PATH"}


def test_user_configuration_is_not_read(user: Path, tmp_path: Path,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".gitconfig").write_text("[core]\n\tbare = true\n\tworktree = /elsewhere\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    found = locate(user)
    assert found is not None and found.work_tree == user
    assert Git(user / ".git").line("config", "--default=none", "--get", "core.worktree") == "none"


def test_repository_is_located(user: Path, tmp_path: Path) -> None:
    repos.git(user, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    repos.git(tmp_path, "clone", "-q", "--bare", "user", "bare")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / ".git").write_text("gitdir: /nonexistent\n")
    shared = user / ".git"
    for name, git_dir, common_dir, work_tree in (
            ("user", shared, shared, user), ("user/src", shared, shared, user),
            ("linked", shared / "worktrees" / "linked", shared, tmp_path / "linked"),
            ("bare", tmp_path / "bare", tmp_path / "bare", None)):
        found = locate(tmp_path / name)
        assert found == git.Location(git_dir=git_dir, common_dir=common_dir, work_tree=work_tree)
    for name in ("broken", "missing"):
        assert locate(tmp_path / name) is None


def test_gitpython_starts_every_git_command_of_the_room() -> None:
    starting = [path.name for path in sorted((ROOT / "engine/repository").rglob("*.py"))
                if re.search(r"subprocess\.(run|Popen|check_\w+)\(", path.read_text())]
    assert starting == []
