"""A verdict that is uncertain on a busy CPU says that the machine was busy."""

from __future__ import annotations

import os

import pytest

from harness.__main__ import with_load
from harness.requests import VerdictLine
from harness.verdict import Row, Verdict


@pytest.mark.parametrize(("load", "high", "says"), [
    (1e4, 0.3, True),
    (1e4, 0.001, False),  # a tie within a tenth of a percent needs no note
    (0.0, 0.3, False),
])
def test_note_states_a_busy_machine_if_times_scatter_too_much(
        load: float, high: float, says: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row(config_class="small", correct=True, outcome="tie", log_ratio=0.0,
              low=-high, high=high, pairs=18)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    line = with_load(VerdictLine(verdict=Verdict(valid=True, correct=True, rows=(row,))), "cpu")
    assert isinstance(line, VerdictLine)
    assert any("the machine was busy: 10000.0 programs" in note
               for note in line.verdict.notes) == says


@pytest.mark.parametrize(("stderr", "says"), [(0.2, True), (0.001, False)])
def test_note_states_a_busy_machine_if_the_size_of_a_loss_is_uncertain(
        stderr: float, says: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row(config_class="small", correct=True, outcome="slower", log_ratio=-0.8, stderr=stderr,
              low=-9.0, high=9.0, pairs=18)
    monkeypatch.setattr(os, "getloadavg", lambda: (1e4, 1e4, 1e4))
    line = with_load(VerdictLine(verdict=Verdict(valid=True, correct=True, rows=(row,))), "cpu")
    assert isinstance(line, VerdictLine) and bool(line.verdict.notes) == says
