"""Where a campaign's result is when it ends, and how it is taken over: said for each mode as it is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.campaign import handover
from engine.journal.read import Reader
from engine.journal.records import Campaign
from engine.journal.write import Writer
from engine.records.report.markdown_report import markdown
from kopt_tui.cli import event_stream
from tests.engine.repository.test_user_tree import BRANCH, campaign
from tests.support import repos
from tests.support.command_line import NAME


def said(workspace: Path, capsys: pytest.CaptureFixture[str]) -> str:
    writer = Writer(workspace)
    writer.set_campaign(NAME, kind="campaign.best", payload={}, speedup=1.5, speedup_low=1.4,
                        speedup_high=1.6)
    writer.close()
    reader = Reader(workspace)
    assert event_stream.print_summary(reader, NAME) == 0
    found = row(reader)
    report = markdown(reader, found)
    assert f"`{handover.command(found)}` takes the result over" in report
    reader.close()
    return capsys.readouterr().out


def row(reader: Reader) -> Campaign:
    found = reader.campaign(NAME)
    assert found is not None
    return found


def test_a_campaign_that_commits_ends_with_its_branch(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user, _ = campaign(tmp_path)
    assert f"branch {BRANCH} in {user}; `kopt merge {NAME}` takes it over\n" in said(
        tmp_path / "w", capsys)


@pytest.mark.parametrize("state", ["gone", "behind"])
def test_a_branch_that_the_project_did_not_take_is_not_promised(
        tmp_path: Path, state: str, capsys: pytest.CaptureFixture[str]) -> None:
    user, repo = campaign(tmp_path)
    if state == "gone":
        repos.git(user, "branch", "-D", BRANCH)
    else:
        repos.git(user, "branch", "-f", BRANCH, repo.base)
    told = said(tmp_path / "w", capsys)
    assert f"branch {BRANCH} in {user}" not in told
    assert f"commit {repo.best[:12]} in {repo.git_dir}; `kopt merge {NAME}` takes it" in told


def test_without_commits_the_result_is_a_patch(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user, repo = campaign(tmp_path, publishes=False)
    told = said(tmp_path / "w", capsys)
    assert BRANCH not in told and "git_commit: false" in told
    assert f"commit {repo.best[:12]} in {repo.git_dir}" in told
    assert f"`kopt merge {NAME} --patch | git -C {user} apply` takes it over" in told


def test_a_campaign_on_a_copy_hands_over_a_patch(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user, repo = campaign(tmp_path)
    repos.git(user, "branch", "-D", BRANCH)
    (repo.folder / "ORIGIN_COMMIT").write_text("f" * 40 + "\n")
    told = said(tmp_path / "w", capsys)
    assert BRANCH not in told and "a copy of the kernel's files" in told
    assert f"`kopt merge {NAME} --patch | git -C {user} apply` takes it over" in told


def test_a_project_that_is_gone_is_no_error(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user, _ = campaign(tmp_path)
    user.rename(tmp_path / "elsewhere")
    assert f"`kopt merge {NAME}` takes it over" in said(tmp_path / "w", capsys)
