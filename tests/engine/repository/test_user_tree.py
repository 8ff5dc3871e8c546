"""A campaign never touches the user's working tree, in any state of that tree."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.repository import project
from engine.repository.campaign_repo import CampaignRepo
from harness.errors import Refused
from kopt_tui.cli import user_repository
from tests.support import repos
from tests.support.engines.kept_campaign_case import BRANCH, advance, campaign
from tests.support.programs.command_line import NAME, error_text, kopt

MINE = repos.edited(repos.KERNEL, 3, "// mine")


THEIRS = repos.edited(repos.KERNEL, 3, "// theirs")


def quietly(user: Path, *arguments: str) -> None:
    """Run a git command that may stop halfway, such as a conflicting merge."""
    subprocess.run(["git", *arguments], cwd=user, env=repos.ENVIRONMENT, check=False,
                   capture_output=True)


def dirty(user: Path) -> None:
    (user / "kernel.c").write_text(MINE)
    (user / "untracked.txt").write_text("mine\n")
    (user / "task.yaml").unlink()


def staged(user: Path) -> None:
    (user / "kernel.c").write_text(MINE)
    repos.git(user, "add", "kernel.c")
    (user / "kernel.c").write_text(THEIRS)
    repos.git(user, "rm", "-q", "--cached", "task.yaml")


def diverged(user: Path) -> None:
    repos.git(user, "switch", "-q", "-c", "other")
    repos.commit(user, {"kernel.c": THEIRS}, "theirs")
    repos.git(user, "switch", "-q", "main")
    repos.commit(user, {"kernel.c": MINE}, "mine")


def rebasing(user: Path) -> None:
    diverged(user)
    quietly(user, "rebase", "other")
    assert (user / ".git" / "rebase-merge").is_dir()


def merging(user: Path) -> None:
    diverged(user)
    quietly(user, "merge", "other")
    assert (user / ".git" / "MERGE_HEAD").is_file()


def merging_without_a_change(user: Path) -> None:
    """An unfinished merge with a clean tree: `reset --merge` would abort it."""
    diverged(user)
    repos.git(user, "merge", "-q", "-s", "ours", "--no-commit", "other")
    assert repos.git(user, "status", "--porcelain") == ""


def picking(user: Path) -> None:
    diverged(user)
    quietly(user, "cherry-pick", "other")
    assert (user / ".git" / "CHERRY_PICK_HEAD").is_file()


def bisecting(user: Path) -> None:
    diverged(user)
    repos.git(user, "bisect", "start")


def stashed(user: Path) -> None:
    (user / "kernel.c").write_text(MINE)
    repos.git(user, "stash", "push", "-q")


def detached(user: Path) -> None:
    repos.git(user, "switch", "-q", "--detach")
    dirty(user)


def locked(name: str) -> Callable[[Path], None]:
    def act(user: Path) -> None:
        (user / ".git" / name).parent.mkdir(parents=True, exist_ok=True)
        (user / ".git" / name).write_text("")
        (user / "kernel.c").write_text(MINE)
    act.__name__ = name
    return act


STATES = [dirty, staged, rebasing, merging, merging_without_a_change, picking, bisecting, stashed,
          detached, locked("index.lock"), locked("HEAD.lock"), locked("config.lock"),
          locked("packed-refs.lock"), locked("refs/heads/main.lock")]


def everything(user: Path) -> dict[str, tuple[bytes, int, int]]:
    """Return contents, time and inode of all files but git's objects and kopt's branch."""
    found = {}
    for path in sorted(user.rglob("*")):
        name = str(path.relative_to(user))
        if path.is_file() and ".git/objects/" not in name and "optimize" not in name:
            found[name] = (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_campaign_does_not_touch_user_tree(tmp_path: Path,
                                           state: Callable[[Path], None]) -> None:
    user = repos.project(tmp_path / "user")
    state(user)
    before = everything(user)
    found = project.find(user)
    repo = CampaignRepo.create(tmp_path / "campaign", NAME, found)
    for line in (20, 25):
        commit = advance(repo, line)
        assert repo.publish() == ""
        assert repos.git(user, "rev-parse", BRANCH) == commit
    repo.remove_all()
    assert everything(user) == before


@pytest.mark.parametrize("name", [f"refs/heads/{BRANCH}.lock"])
def test_locked_user_branch_is_reported_and_gain_kept(tmp_path: Path, name: str) -> None:
    user = repos.project(tmp_path / "user")
    locked(name)(user)
    repo = CampaignRepo.create(tmp_path / "campaign", NAME, user)
    commit = advance(repo)
    before = everything(user)
    refusal = repo.publish()
    assert "was not updated" in refusal and "\n" not in refusal
    assert repo.best == commit and everything(user) == before
    (user / ".git" / name).unlink()
    assert repo.publish() == "" and repos.git(user, "rev-parse", BRANCH) == commit


@pytest.mark.parametrize(("state", "words"), [
    (dirty, "changed but not committed"), (staged, "changed but not committed"),
    (rebasing, "a rebase is under"),
    (merging, "a merge is under way"), (merging_without_a_change, "a merge is under way"),
    (picking, "a cherry-pick is under way"), (bisecting, "a bisection is under way"),
    (detached, "no branch is checked out"), (locked("index.lock"), "another git command holds"),
], ids=lambda value: getattr(value, "__name__", ""))
def test_refused_merge_touches_nothing(tmp_path: Path, state: Callable[[Path], None],
                                       words: str) -> None:
    user = repos.project(tmp_path / "user")
    state(user)
    before = everything(user)
    with pytest.raises(Refused, match=words):
        user_repository.UserRepository(user).check_clean()
    assert everything(user) == before


@pytest.mark.parametrize("form", ["branch", "squash"])
def test_refused_merge_keeps_users_own_merge(tmp_path: Path, form: str) -> None:
    user, _ = campaign(tmp_path)
    merging_without_a_change(user)
    before = everything(user)
    done = kopt("merge", "--as", form, workspace=tmp_path / "w")
    assert done.returncode == 1 and "a merge is under way" in error_text(done)
    assert everything(user) == before


def test_git_commit_false_writes_nothing_to_user_repository(tmp_path: Path) -> None:
    user = repos.project(tmp_path / "user")
    before = {str(p): p.read_bytes() for p in user.rglob("*") if p.is_file()}
    repo = CampaignRepo.create(tmp_path / "campaign", NAME, user, publishes=False)
    commit = advance(repo)
    assert repo.publish() == ""
    assert {str(p): p.read_bytes() for p in user.rglob("*") if p.is_file()} == before
    assert repo.best == commit and repo.log(commit, repo.base) == [commit]


def test_git_commit_false_offers_patch_and_explicit_merge(tmp_path: Path) -> None:
    user, repo = campaign(tmp_path, publishes=False)
    before = everything(user)
    done = kopt("merge", workspace=tmp_path / "w")
    assert done.returncode == 1 and "git_commit: false" in error_text(done)
    printed = kopt("merge", "--patch", workspace=tmp_path / "w").stdout
    assert everything(user) == before and repos.git(user, "branch", "--list", BRANCH) == ""
    (tmp_path / "out.patch").write_text(printed)
    repos.git(user, "apply", str(tmp_path / "out.patch"))
    assert (user / "kernel.c").read_bytes() == repo.read(repo.best, "kernel.c")
    repos.git(user, "checkout", "-q", ".")
    assert kopt("merge", "--as", "squash", workspace=tmp_path / "w").returncode == 0
    assert "faster_20();" in (user / "kernel.c").read_text()


def test_patch_does_not_need_project(tmp_path: Path) -> None:
    user, _ = campaign(tmp_path)
    shutil.rmtree(user)
    assert "+faster_20();" in kopt("merge", "--patch", workspace=tmp_path / "w").stdout
    done = kopt("merge", workspace=tmp_path / "w")
    assert done.returncode == 3 and "folder is gone" in error_text(done)


def test_deleted_linked_worktree_of_user_keeps_gain(tmp_path: Path) -> None:
    user = repos.project(tmp_path / "user")
    repos.git(user, "worktree", "add", "-q", str(tmp_path / "linked"), "-b", "side")
    repo = CampaignRepo.create(tmp_path / "campaign", NAME, tmp_path / "linked")
    advance(repo, 20)
    assert repo.publish() == ""
    shutil.rmtree(tmp_path / "linked")
    commit, before = advance(repo, 25), everything(user)
    refusal = repo.publish()
    assert refusal and "\n" not in refusal
    assert repo.best == commit and everything(user) == before
