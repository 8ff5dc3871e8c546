"""A campaign's clone survives lost worktrees and stale locks; its kept commits are linear."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from engine.lineage.commit import describe_drop
from engine.repository.campaign_repo import BEST_FILE, CampaignRepo
from engine.repository.git import Git, GitFailed
from harness.errors import EnvironmentFault, InputError, KoptError
from tests.support import repos
from tests.support.engines.kept_campaign_case import advance, change
from tests.support.programs.command_line import NAME

MINE = repos.edited(repos.KERNEL, 3, "// mine")


@pytest.mark.parametrize("gone", ["worktrees/s", "worktrees", "worktrees/s/.git",
                                  "repo.git/kopt/slots", "repo.git/kopt"])
def test_deleted_slot_worktree_does_not_stop_the_next(tmp_path: Path, gone: str) -> None:
    """Whoever deletes it: the slot fails or is captured, and the next one works."""
    repo = CampaignRepo.create(tmp_path / "campaign", NAME, repos.project(tmp_path / "user"))
    tree = repo.worktree("s", repo.base)
    (tree / "kernel.c").write_text(MINE)
    shutil.rmtree(repo.folder / gone)
    if tree.is_dir():
        assert [f.path for f in repo.capture(tree, repo.base).patch.files] == ["kernel.c"]
    else:
        with pytest.raises(InputError, match="removed its worktree"):
            repo.capture(tree, repo.base)
    repo.remove("s")
    assert advance(repo) == repo.best


def test_error_for_missing_clone_is_one_line(tmp_path: Path) -> None:
    repo = CampaignRepo.create(tmp_path / "campaign", NAME, repos.project(tmp_path / "user"))
    shutil.rmtree(repo.git_dir)
    with pytest.raises(KoptError) as error:
        repo.worktree("s", "HEAD")
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="no clone"):
        CampaignRepo(tmp_path / "campaign", NAME, tmp_path / "user")


def test_locks_in_clone_are_cleared_on_takeover(tmp_path: Path) -> None:
    """Locks of an index, a reference and the packed references, as a killed git leaves them."""
    repo = CampaignRepo.create(tmp_path / "campaign", NAME, repos.project(tmp_path / "user"))
    repos.git(repo.git_dir, "config", "core.filesRefLockTimeout", "0")
    for name in (f"{repo.ref}.lock", "packed-refs.lock", "HEAD.lock", "index.lock",
                 "shallow.lock"):
        lock = repo.git_dir / name
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.write_text("")
        os.utime(lock, (1, 1))
    commit = repo.commit(repo.base, change(repo).tree, "faster")
    with pytest.raises((GitFailed, EnvironmentFault)):
        repo.advance(repo.base, commit)
    repo.unlock()
    assert repo.advance(repo.base, commit)
    assert not list(repo.git_dir.rglob("*.lock"))


def test_best_commit_is_written_to_file(tmp_path: Path) -> None:
    repo = CampaignRepo.create(tmp_path / "campaign", NAME, repos.project(tmp_path / "user"))
    path = repo.folder / BEST_FILE
    assert BEST_FILE == "BEST_COMMIT" and path.read_text() == f"{repo.base}\n"
    commit = advance(repo)
    repo.note_best()
    assert path.read_text() == f"{commit}\n"
    path.unlink()
    CampaignRepo(repo.folder, NAME, tmp_path / "user").note_best()
    assert path.read_text() == f"{commit}\n"
    assert [p.name for p in repo.folder.iterdir() if ".new" in p.name] == []


def test_kept_commits_are_linear(tmp_path: Path) -> None:
    repo = CampaignRepo.create(tmp_path / "campaign", NAME, repos.project(tmp_path / "user"))
    commits = [advance(repo, line) for line in (5, 15, 25, 35)]
    assert repo.log(repo.best, repo.base) == commits
    before = repo.base
    for commit in commits:
        assert repo.git.line("rev-parse", f"{commit}^@") == before
        before = commit
    assert Git(repo.git_dir).line("rev-list", "--min-parents=2", repo.best) == ""


@pytest.mark.parametrize(("before", "now", "falls"), [
    (None, 1.2, False), (1.2, None, False), (1.2, 1.3, False), (1.2, 1.2, False),
    (1.2, 1.2 * 0.991, False), (1.2, 1.2 * 0.99, False), (1.2, 1.2 * 0.989, True),
    (1.0, 0.9, True), (3.0, 2.5, True),
])
def test_accepted_score_may_not_fall_by_more_than_one_percent(
    before: float | None, now: float | None, falls: bool
) -> None:
    message = describe_drop(before, now)
    assert bool(message) == falls and "\n" not in message
    if falls:
        assert "1 %" in message and f"{before:.3f}x" in message
