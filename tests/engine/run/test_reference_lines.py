"""A campaign on a PyTorch module measures torch.compile once, and shows it beside all verdicts.

Agents are told of it, so it precedes their first round; without agents it follows the first round.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.history import campaign_view
from engine.records import performance
from engine.records.report import campaign_report
from engine.verify import reference_lines
from harness.errors import Refused
from kopt_tui.snapshot.snapshot import Focus
from kopt_tui.snapshot.snapshot_builder import Builder
from tests.support.engines import campaigns, instant_verdicts
from tests.support.kernels import module_case
from tests.support.programs.command_line import kopt

EAGER, COMPILED, CANDIDATE = 40.0, 18.6, 20.0
LINE = "full: 2.00x of eager (40.0 us), 0.93x of torch.compile (18.6 us), below the bar; " \
       "measured on cpu at "


def cost(setup: Setup, tree: str) -> float:
    text = setup.repo.read(tree, "problem.py")
    return COMPILED if b"torch.compile" in text else CANDIDATE if b"ModelNew" in text else EAGER


def failing(setup: Setup, tree: str) -> float:
    if b"torch.compile" in setup.repo.read(tree, "problem.py"):
        raise Refused("the harness ran past its limit of 600 s")
    return cost(setup, tree)


def purposes(setup: Setup) -> list[str]:
    """Return the purposes of the campaign's verdicts, in their order."""
    with campaigns.reading(setup) as reader:
        rows = reader.verdicts(setup.id)
    return [row.purpose for row in sorted(rows, key=lambda row: row.id)]


def test_references_are_measured_once_and_shown_everywhere(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instant_verdicts.install(monkeypatch, cost)
    setup = module_case.create(tmp_path)
    module_case.hand_in(setup)
    assert campaigns.run(setup).error is None
    assert campaigns.run(setup).error is None  # a second engine measures nothing again
    assert purposes(setup) == ["baseline", "verify", "headline", "reference"]
    assert module_case.reference_lines(setup)[0].startswith(LINE)
    assert f"- reference line: {LINE}" in kopt(
        "show", campaigns.candidates(setup, "kept")[0].id, workspace=setup.workspace).stdout
    with campaigns.reading(setup) as reader:
        view = campaign_view.read(reader, setup.id)
        screen = Builder(setup.workspace, reader, time.time).snapshot(Focus(setup.id)).view
    for text in (performance.page(view), campaign_report.markdown(view),
                 kopt("show", setup.id, workspace=setup.workspace).stdout):
        assert "0.93x of torch.compile (18.6 us), below the bar" in text
        assert "measured on cpu" in text
        assert "below the bar in 1 of 1 classes (torch.compile)" in text
    assert "below the bar in 1 of 1" in kopt("status", workspace=setup.workspace).stdout
    assert screen is not None and screen.classes is not None
    line, measured = screen.classes.references
    assert line in LINE and "measured on cpu" in measured


def test_coding_agents_are_told_of_the_bar_before_their_first_round(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instant_verdicts.install(monkeypatch, cost)
    setup = module_case.create(tmp_path, backends=["cli", "inbox"], slots=2,
                               cli=[{"name": "idle", "command": "cat {prompt}"}])
    module_case.hand_in(setup)
    assert campaigns.run(setup).error is None
    assert purposes(setup) == ["baseline", "reference", "verify", "headline"]


@pytest.mark.slow  # the line itself: tests/engine/verify/test_reference_lines
def test_failing_torch_compile_only_removes_its_line(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instant_verdicts.install(monkeypatch, failing)
    setup = module_case.create(tmp_path)
    module_case.hand_in(setup)
    assert campaigns.run(setup).error is None
    assert len(campaigns.candidates(setup, "kept")) == 1
    eager, why = module_case.reference_lines(setup)
    assert eager.startswith("full: 2.00x of eager (40.0 us); measured on")
    assert why == "torch.compile is not a reference here: the harness ran past its limit of 600 s"
    assert reference_lines.PURPOSE in purposes(setup)
