"""`git_branch` names the project's branch that kept commits are pushed to, if any."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.campaign.setup import Setup, open_campaign
from engine.manifest.load import parse
from engine.manifest.rules import ignored_fields
from harness.errors import InputError
from tests.support import repos
from tests.support.engines import campaigns


def keep(setup: Setup) -> str:
    """Keep and publish a faster kernel; return the commit."""
    repo = setup.repo
    before = repo.best
    commit = repo.commit(before, repo.take(before, campaigns.patch(setup)).tree, "faster")
    assert repo.advance(before, commit) and repo.publish() == ""
    return commit


def branches(setup: Setup) -> list[str]:
    listed = repos.git(setup.repo.project, "for-each-ref", "--format=%(refname:short)")
    return sorted(name for name in listed.split() if name != "main")


@pytest.mark.parametrize(("git_branch", "branch"), [
    ("auto", "optimize/{id}"), ("optimize/mine", "optimize/mine"), ("team/fast", "team/fast")])
def test_kept_commits_are_pushed_to_named_branch(tmp_path: Path, git_branch: str,
                                                 branch: str) -> None:
    setup = campaigns.create(tmp_path, git_branch=git_branch)
    commit = keep(open_campaign(setup.workspace, setup.id))
    name = branch.format(id=setup.id)
    assert branches(setup) == [name]
    assert repos.git(setup.repo.project, "rev-parse", name) == commit
    assert setup.repo.best == commit


def test_git_branch_none_updates_the_checked_out_branch(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path, git_branch="none")
    setup = open_campaign(setup.workspace, setup.id)
    repo, user = setup.repo, setup.repo.project
    source = user / "scale.c"
    source.write_text(f"{campaigns.KERNEL}// mine\n")
    before = repo.best
    commit = repo.commit(before, repo.take(before, campaigns.patch(setup)).tree, "faster")
    assert repo.advance(before, commit)
    assert repo.publish().endswith(
        "branch main was not updated: its files have uncommitted changes")
    assert source.read_text().endswith("// mine\n")

    source.write_text(campaigns.KERNEL)
    assert repo.publish() == ""
    assert (branches(setup), repos.git(user, "rev-parse", "main")) == ([], commit)
    assert source.read_text() == campaigns.FASTER and repos.git(user, "status", "-s") == ""
    repo.restore(repo.base)
    assert repo.take_back(commit) == ""
    assert source.read_text() == campaigns.KERNEL and repos.git(user, "status", "-s") == ""


def test_git_branch_none_needs_a_branch(tmp_path: Path) -> None:
    manifest = campaigns.project(tmp_path / "p", git_branch="none")
    repos.git(tmp_path / "p", "switch", "-q", "--detach")
    with pytest.raises(InputError, match="commits to the current branch, but none is checked"):
        campaigns.campaigns.create(tmp_path / "w", manifest)


def test_named_branch_is_reset_but_never_forced(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path, git_branch="mine")
    repo, user = setup.repo, setup.repo.project
    commit = keep(setup)
    repo.restore(repo.base)
    assert repo.take_back(commit) == ""
    assert repos.git(user, "rev-parse", "mine") == repo.base
    repos.git(user, "switch", "-q", "mine")
    repos.commit(user, {"reference.py": "def scale(x):\n    return x + x\n"}, "theirs")
    repos.git(user, "switch", "-q", "main")
    theirs = repos.git(user, "rev-parse", "mine")
    repo.restore(commit)
    assert "branch mine was not updated: it has commits that are not the campaign's" in \
        repo.publish()
    assert repos.git(user, "rev-parse", "mine") == theirs


@pytest.mark.parametrize(("text", "ignored"), [
    ("git_branch: mine", ()), ("git_branch: none", ()), ("git_branch: none\ngit_commit: false", ()),
    ("git_branch: mine\ngit_commit: false", ("git_branch",)),
    ("git_branch: mine\nexecution_mode: workspace", ("git_branch",))])
def test_unused_branch_name_is_reported(text: str, ignored: tuple[str, ...]) -> None:
    assert ignored_fields(parse(f"target_op: x\n{text}\n", "m")) == ignored
