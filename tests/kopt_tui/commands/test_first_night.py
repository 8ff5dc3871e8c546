"""Tests what a person finds in the morning after a night that did not go as planned."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import NAME, answer, kopt, write_campaign


def test_report_says_that_the_engine_is_gone(tmp_path: Path) -> None:
    """After a reboot `kopt status` said `lost`, but the report that the campaign was running."""
    write_campaign(tmp_path, state="running", reason="")
    advice = f"its engine is gone; kopt resume {NAME} continues it"
    assert advice in kopt("status", workspace=tmp_path).stdout
    report = answer(kopt("report", "--json", workspace=tmp_path))["markdown"]
    assert f"- state: lost: {advice}" in report and "is running" not in report
    assert f"The campaign is lost after the baseline: {advice}." in report
