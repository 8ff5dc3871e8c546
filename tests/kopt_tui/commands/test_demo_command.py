"""The demo at a terminal ends with its result, as the one in a pipe does."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from engine.journal import lease
from engine.journal.write import Writer
from kopt_tui.commands import demo
from kopt_tui.dashboard import launch
from tests.support.waiting_case import LARGE, create, instant_verdicts, try_change


def leave_dashboard(workspace: Path, campaign: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the demo at a terminal whose dashboard is left at once; its campaign is given."""
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(demo, "start", lambda *_: 0)
    monkeypatch.setattr(demo, "_copy", lambda *_: workspace)
    monkeypatch.setattr("engine.campaign.setup.create",
                        lambda *_: argparse.Namespace(id=campaign))
    monkeypatch.setattr(launch, "main", lambda *_, **__: 0)
    return demo.run(argparse.Namespace(workspace=workspace, plain=False, example="matmul_c"))


def test_demo_that_is_left_says_what_waits_or_that_it_goes_on(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    instant_verdicts(monkeypatch)
    setup = create(tmp_path)
    large = try_change(setup, LARGE, "large")
    assert leave_dashboard(setup.workspace, setup.id, monkeypatch) == 0
    printed = capsys.readouterr().out
    assert "waiting for approval" in printed and f"(kopt approve {large.id})" in printed
    writer = Writer(setup.workspace)
    held = lease.acquire(writer, setup.id)
    assert leave_dashboard(setup.workspace, setup.id, monkeypatch) == 0
    assert f"{setup.id} goes on; kopt attach {setup.id}" in capsys.readouterr().out
    lease.release(writer, held)
    writer.close()
