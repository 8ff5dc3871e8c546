"""The demo at a terminal prints its result at the end, as it does in a pipe."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from engine.journal import lease
from engine.journal.write import Writer
from kopt_tui.commands import demo
from kopt_tui.dashboard import launch
from tests.support.dashboards.dashboard_journal import CAMPAIGN, Journal, candidate_id, make


def leave_dashboard(workspace: Path, campaign: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the demo on a given campaign; its dashboard ends at once. Return the exit code."""
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(demo, "start", lambda *_: 0)
    monkeypatch.setattr(demo, "_copy", lambda *_: workspace)
    monkeypatch.setattr("engine.campaign.setup.create",
                        lambda *_: argparse.Namespace(id=campaign))
    monkeypatch.setattr(launch, "main", lambda *_, **__: 0)
    return demo.run(argparse.Namespace(workspace=workspace, plain=False, agent=False,
                                       example="matmul_c"))


def test_leaving_the_demo_reports_whether_its_campaign_waits_runs_or_is_lost(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path)
    assert leave_dashboard(tmp_path, CAMPAIGN, monkeypatch) == 1
    assert f"{CAMPAIGN}: running, its engine is gone;\n  kopt resume" in capsys.readouterr().out
    journal = Journal(tmp_path)
    with journal.db:
        journal.db.execute("UPDATE campaigns SET state = 'waiting' WHERE id = ?", (CAMPAIGN,))
    journal.close()
    assert leave_dashboard(tmp_path, CAMPAIGN, monkeypatch) == 0
    printed = capsys.readouterr().out
    assert "waiting for approval" in printed
    assert f"(kopt approve {candidate_id(3, 'plan-1')})" in printed
    writer = Writer(tmp_path)
    held = lease.acquire(writer, CAMPAIGN)
    assert leave_dashboard(tmp_path, CAMPAIGN, monkeypatch) == 0
    assert f"{CAMPAIGN} continues; kopt attach {CAMPAIGN}" in capsys.readouterr().out
    lease.release(writer, held)
    writer.close()
