"""CampaignRepo with real git: the clone, its commits, checkouts and the user's branch."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from engine.repository import git, project
from engine.repository.campaign_repo import CampaignRepo
from engine.repository.clone import Change
from harness.errors import EnvironmentFault, InputError
from tests.support import repos

BRANCH = "optimize/rms"


def state_of(user: Path) -> tuple[object, ...]:
    """Return everything in the user's repository that a campaign must not touch."""
    git_dir = user / ".git"
    files = {str(p.relative_to(user)): p.read_bytes() for p in user.rglob("*")
             if p.is_file() and git_dir not in p.parents}
    refs = repos.git(user, "for-each-ref", "--format=%(refname) %(objectname)")
    others = [line for line in refs.splitlines() if BRANCH not in line]
    return files, others, (git_dir / "HEAD").read_bytes(), (git_dir / "index").read_bytes(), \
        (git_dir / "config").read_bytes()


def edit(repo: CampaignRepo, path: str = "kernel.c", line: int = 3,
         new: str = "faster();") -> Change:
    """Return a change captured from a worktree of its own."""
    tree = repo.worktree("editor", repo.best)
    (tree / path).write_text(repos.edited((tree / path).read_text(), line, new))
    return repo.capture(tree, repo.best)


def test_clean_project_is_described(user: Path) -> None:
    found = project.find(user)
    assert (found.dirty, found.warning) == ((), "")
    assert found.head == repos.git(user, "rev-parse", "HEAD")


def test_dirty_project_is_described_and_not_touched(user: Path, tmp_path: Path) -> None:
    (user / "kernel.c").write_text("half done")
    (user / "untracked.txt").write_text("mine")
    before = state_of(user)
    found = project.find(user)
    assert found.dirty == ("kernel.c",)
    assert "kernel.c" in found.warning
    assert "\n" not in found.warning
    repo = CampaignRepo.create(tmp_path / "campaign", "rms", found)
    assert repo.read(repo.base, "kernel.c").decode() == repos.KERNEL
    assert state_of(user) == before


def test_unusable_project_is_refused_in_one_line(tmp_path: Path, user: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "unborn").mkdir()
    repos.git(tmp_path / "unborn", "init", "-q")
    for path, message in (("missing", "no such folder"), ("plain", "git init"),
                       ("unborn", "no commit yet"), ("user/src", "inside the repository")):
        with pytest.raises(InputError, match=message) as refusal:
            project.find(tmp_path / path)
        assert "\n" not in str(refusal.value)


def test_detached_bare_shallow_and_linked_projects_work(tmp_path: Path, user: Path) -> None:
    first = repos.git(user, "rev-parse", "HEAD")
    repos.commit(user, {"kernel.c": "int x;\n"}, "second")
    repos.git(user, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"), first)
    repos.git(tmp_path, "clone", "-q", "--bare", "user", "bare")
    repos.git(tmp_path, "clone", "-q", "--depth=1", f"file://{user}", "shallow")
    for name, head in (("linked", first), ("bare", None), ("shallow", None)):
        repo = CampaignRepo.create(tmp_path / f"c-{name}", "rms", tmp_path / name)
        assert repo.base == (head or repos.git(user, "rev-parse", "HEAD"))
        change = edit(repo, "kernel.c", 0, "faster();")
        commit = repo.commit(repo.base, change.tree, "faster")
        assert repo.advance(repo.base, commit)
        assert repo.publish() == ""
        assert repos.git(tmp_path / name, "rev-parse", BRANCH) == commit
        assert "faster" in repos.git(repo.worktree("s", commit), "log", "--oneline")


def test_inherited_git_settings_are_ignored(
    tmp_path: Path, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "trap"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for hook in ("post-checkout", "reference-transaction", "pre-push", "pre-receive", "update",
                 "post-receive", "post-update", "pre-auto-gc", "post-index-change"):
        (hooks / hook).write_text(f"#!/bin/sh\ntouch {trap}\n")
        (hooks / hook).chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(f"[core]\n\thooksPath = {hooks}\n\tfsmonitor = touch {trap}\n"
                      "[diff]\n\tnoprefix = true\n\texternal = false\n[commit]\n\tgpgSign = true\n"
                      "[receive]\n\tdenyCurrentBranch = updateInstead\n")
    with (user / ".git" / "config").open("a") as user_config:
        user_config.write(config.read_text())
    monkeypatch.setattr(git, "CLEARED", {})
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(hooks))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "nowhere.index"))
    monkeypatch.setenv("GIT_PAGER", f"touch {trap}")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", f"touch {trap}")
    before = state_of(user)
    repo = CampaignRepo.create(tmp_path / "campaign", "rms", user)
    commit = repo.commit(repo.base, edit(repo).tree, "faster")
    assert repo.advance(repo.base, commit)
    assert repo.publish() == ""
    assert repos.git(user, "rev-parse", BRANCH) == commit
    assert not trap.exists()
    assert state_of(user) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository away")
def test_project_of_another_owner_works(tmp_path: Path, user: Path) -> None:
    for place in (user, *user.rglob("*")):
        os.chown(place, 12345, 12345)
    repo = CampaignRepo.create(tmp_path / "campaign", "rms", user)
    repo.advance(repo.base, repo.commit(repo.base, edit(repo).tree, "faster"))
    assert repo.publish() == ""


def test_second_create_opens_and_torn_clone_is_replaced(tmp_path: Path, user: Path) -> None:
    (tmp_path / "campaign" / "repo.git.new" / "objects").mkdir(parents=True)
    repo = CampaignRepo.create(tmp_path / "campaign", "rms", user)
    base = repo.base
    repos.commit(user, {"kernel.c": "new"}, "goes on")
    assert CampaignRepo.create(tmp_path / "campaign", "rms", user).base == base
    assert CampaignRepo(tmp_path / "campaign", "rms", user).best == base
    with pytest.raises(InputError, match="no clone"):
        CampaignRepo(tmp_path / "elsewhere", "rms", user)


def test_clone_shares_no_file_with_user_repository(repo: CampaignRepo,
                                                   user: Path) -> None:
    inodes = {p.stat().st_ino for p in (user / ".git").rglob("*") if p.is_file()}
    assert not any(p.stat().st_ino in inodes for p in repo.git_dir.rglob("*") if p.is_file())
    assert not (repo.git_dir / "objects" / "info" / "alternates").exists()


def test_tree_is_checked_out_as_plain_files(repo: CampaignRepo, tmp_path: Path) -> None:
    out = tmp_path / "out"
    repo.checkout_tree(repo.base, out)
    found = {str(p.relative_to(out)): p.read_text() for p in out.rglob("*") if p.is_file()}
    assert found == repos.FILES
    assert sorted(repo.files(repo.base)) == sorted(repos.FILES)
    with pytest.raises(FileExistsError):
        repo.checkout_tree(repo.base, out)
    with pytest.raises(InputError, match="no commit"):
        repo.checkout_tree("0" * 40, tmp_path / "other")


def test_relative_paths_work(
    tmp_path: Path, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    CampaignRepo.create(Path("campaign"), "rms", Path("user"))
    repo = CampaignRepo(Path("campaign"), "rms", Path("user"))
    repo.advance(repo.base, repo.commit(repo.base, edit(repo).tree, "faster"))
    assert repo.publish() == ""
    repo.checkout_tree(repo.best, Path("out"))
    assert "faster();" in Path("out/kernel.c").read_text()
    (Path("campaign/worktrees/editor") / "kernel.c").write_text("x\n")
    assert repo.capture(Path("campaign/worktrees/editor"), repo.best)


def test_error_for_name_that_git_refuses_is_one_line(tmp_path: Path, user: Path) -> None:
    for name in ("a..b", "a b", "", "x.lock", "a~1", "new\nline"):
        with pytest.raises(InputError, match="git refuses") as refusal:
            CampaignRepo.create(tmp_path / "campaign", name, user)
        assert "\n" not in str(refusal.value)


def test_full_disk_is_environment_fault(repo: CampaignRepo) -> None:
    complaints = b"error: file write error: No space left on device\nfatal: unable to write\n"
    assert isinstance(git._failure("add", b"", complaints, None), EnvironmentFault)


def test_error_for_missing_git_is_one_line(repo: CampaignRepo,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(EnvironmentFault, match="git is not installed"):
        repo.tree_of("HEAD")


def test_same_commit_arguments_give_same_id(repo: CampaignRepo) -> None:
    tree = edit(repo).tree
    first = repo.commit(repo.base, tree, "faster\n\nbecause\x1b[31m")
    assert repo.commit(repo.base, tree, "faster\n\nbecause\x1b[31m") == first
    assert repo.commit(repo.base, tree, "other words") != first
    assert repo.git.line("rev-parse", f"{first}^@") == repo.base
    assert repos.message(repo.git_dir, first) == "faster\n\nbecause [31m"
    shown = repos.git(repo.git_dir, "log", "-1", "--format=%an %ae %cn %at %ct", first)
    assert shown == "kopt kopt@localhost kopt 1700000001 1700000001"
    assert repo.best == repo.base


def test_branch_moves_by_compare_and_swap(repo: CampaignRepo) -> None:
    base = repo.base
    one = repo.commit(base, edit(repo, line=3).tree, "one")
    two = repo.commit(base, edit(repo, line=9).tree, "two")
    assert repo.advance(base, one)
    assert repo.advance(base, one)  # a retry
    assert not repo.advance(base, two)
    assert repo.best == one
    assert repo.log(one, base) == [one]
    repo.restore(base)
    assert repo.best == base


def test_only_one_concurrent_swap_wins(repo: CampaignRepo) -> None:
    base = repo.base
    commits = [repo.commit(base, edit(repo, line=n).tree, f"{n}") for n in range(6)]
    racing = [subprocess.Popen(["git", "update-ref", repo.ref, commit, base],
                               cwd=repo.git_dir, stderr=subprocess.DEVNULL)
              for commit in commits]
    won = [process.wait(20) == 0 for process in racing]
    assert won.count(True) == 1
    assert [repo.advance(base, commit) for commit in commits] == won


def test_stale_locks_are_cleared(repo: CampaignRepo) -> None:
    lock = repo.git_dir / f"{repo.ref}.lock"
    lock.write_text("")
    os.utime(lock, (1, 1))
    left = repo.git_dir / "kopt" / "index-dead"
    left.mkdir(parents=True)
    os.utime(left, (1, 1))
    repo.unlock()
    assert not lock.exists()
    assert not left.exists()
    assert repo.advance(repo.base, repo.commit(repo.base, edit(repo).tree, "faster"))


def test_publishing_changes_only_the_branch(repo: CampaignRepo, user: Path) -> None:
    (user / "kernel.c").write_text("half done")
    repos.git(user, "add", "kernel.c")
    (user / "reference.py").write_text("also half done")
    before = state_of(user)
    for n in range(2):
        commit = repo.commit(repo.best, edit(repo, line=n).tree, f"{n}")
        assert repo.advance(repo.best, commit)
        assert repo.publish() == ""
        assert repo.publish() == ""
        assert repos.git(user, "rev-parse", BRANCH) == commit
    assert state_of(user) == before


def test_foreign_branch_is_refused_in_one_line(repo: CampaignRepo,
                                               user: Path) -> None:
    commit = repo.commit(repo.base, edit(repo).tree, "faster")
    repo.advance(repo.base, commit)
    cases = {
        "commits that are not": ("switch", "-q", "-c", BRANCH),
        "checked out": ("switch", "-q", "-C", BRANCH, repo.base),
        "optimize": ("switch", "-q", "-C", "main", repo.base),
    }
    for message, command in cases.items():
        repos.git(user, *command)
        if message == "commits that are not":
            repos.commit(user, {"kernel.c": "mine\n"}, "mine")
            repos.git(user, "switch", "-q", "main")
        if message == "optimize":
            repos.git(user, "branch", "-q", "-D", BRANCH)
            repos.git(user, "branch", "-q", "optimize")
        before = repos.git(user, "for-each-ref")
        refusal = repo.publish()
        assert message in refusal
        assert "\n" not in refusal
        assert repos.git(user, "for-each-ref") == before
        assert repo.best == commit
    repos.git(user, "branch", "-q", "-D", "optimize")
    assert repo.publish() == ""


def test_missing_user_repository_is_refused_in_one_line(
    repo: CampaignRepo, user: Path
) -> None:
    user.rename(user.with_name("moved"))
    refusal = repo.publish()
    assert "does not" in refusal or "not take" in refusal
    assert "\n" not in refusal


def test_deleted_user_branch_is_created_again(repo: CampaignRepo, user: Path) -> None:
    repo.advance(repo.base, repo.commit(repo.base, edit(repo).tree, "faster"))
    assert repo.publish() == ""
    repos.git(user, "branch", "-q", "-D", BRANCH)
    assert repo.publish() == ""
