"""`kopt doctor` wraps its findings to the terminal's width."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from engine.doctor import machine, surroundings, tools
from engine.doctor.tools import MachineCheck
from kopt_tui.cli import text_lines
from kopt_tui.commands import doctor


def test_findings_and_fixes_break_between_words(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
        tmp_path: Path) -> None:
    found = MachineCheck("load", "warn", "3.8 processes running on 2 cores",
                         "wait until the other programs have ended")
    monkeypatch.setattr(tools, "checks", lambda: [found])
    monkeypatch.setattr(machine, "checks", lambda _: [])
    monkeypatch.setattr(surroundings, "checks", list)
    monkeypatch.setattr(text_lines, "terminal_width", lambda _: 32)
    assert doctor.run(argparse.Namespace(json=False, workspace=tmp_path)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "! load  3.8 processes running on", "        2 cores",
        "        → wait until the other", "          programs have ended",
        "no requirement is missing"]
