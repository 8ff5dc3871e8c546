"""At its end, a campaign states where its result is and how to take it over, in each mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.campaign import handover
from engine.history.campaign_view import read_with_manifest
from engine.journal.read import Reader
from engine.journal.records import Campaign
from engine.journal.write import Writer
from engine.records.report.campaign_report import markdown
from kopt_tui.cli import event_stream
from tests.support import repos
from tests.support.engines.kept_campaign_case import BRANCH, campaign
from tests.support.programs.command_line import NAME


def final_output(workspace: Path, capsys: pytest.CaptureFixture[str]) -> str:
    writer = Writer(workspace)
    writer.set_campaign(NAME, kind="campaign.best", payload={}, speedup=1.5, speedup_low=1.4,
                        speedup_high=1.6)
    writer.close()
    reader = Reader(workspace)
    assert event_stream.print_summary(reader, NAME) == 0
    row = campaign_row(reader)
    report = markdown(read_with_manifest(reader, row))
    assert f"- merge command: `{handover.command(row)}`" in report
    reader.close()
    return capsys.readouterr().out


def campaign_row(reader: Reader) -> Campaign:
    row = reader.campaign(NAME)
    assert row is not None
    return row


def test_committing_campaign_names_its_branch(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user, _ = campaign(tmp_path)
    assert f"branch {BRANCH} in {user}; `kopt merge {NAME}` applies it\n" in final_output(
        tmp_path / "w", capsys)


@pytest.mark.parametrize("state", ["gone", "behind"])
def test_deleted_or_outdated_branch_is_not_named_as_the_result(
        tmp_path: Path, state: str, capsys: pytest.CaptureFixture[str]) -> None:
    user, repo = campaign(tmp_path)
    if state == "gone":
        repos.git(user, "branch", "-D", BRANCH)
    else:
        repos.git(user, "branch", "-f", BRANCH, repo.base)
    output = final_output(tmp_path / "w", capsys)
    assert f"branch {BRANCH} in {user}" not in output
    assert f"commit {repo.best[:12]} in {repo.git_dir}; `kopt merge {NAME}` applies it" in output


def test_git_commit_false_hands_over_patch(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user, repo = campaign(tmp_path, publishes=False)
    output = final_output(tmp_path / "w", capsys)
    assert BRANCH not in output and "git_commit: false" in output
    assert f"commit {repo.best[:12]} in {repo.git_dir}" in output
    assert f"`kopt merge {NAME} --patch | git -C {user} apply` applies it" in output


def test_campaign_on_copy_hands_over_patch(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user, repo = campaign(tmp_path)
    repos.git(user, "branch", "-D", BRANCH)
    (repo.folder / "ORIGIN_COMMIT").write_text("f" * 40 + "\n")
    output = final_output(tmp_path / "w", capsys)
    assert BRANCH not in output and "a copy of the kernel's files" in output
    assert f"`kopt merge {NAME} --patch | git -C {user} apply` applies it" in output


def test_missing_project_is_not_an_error(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user, _ = campaign(tmp_path)
    user.rename(tmp_path / "elsewhere")
    assert f"`kopt merge {NAME}` applies it" in final_output(tmp_path / "w", capsys)
