"""A gain that waited under a kopt without a waiting line joins the line at the next start."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.campaign import setup as campaigns_of
from engine.campaign.setup import Setup
from engine.history import waiting_line
from engine.journal.records import Candidate
from harness.devices import inventory
from tests.support.dashboards.recorded_workspace import execute, unpack
from tests.support.engines import campaigns
from tests.support.engines.waiting_case import costs_at, instant_verdicts, now, past
from tests.support.programs.command_line import kopt

ID, LARGE, SMALL = "norm_python_cpu_20261123", "856b87dd6c7c", "e280fb8c12f6"


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    instant_verdicts(monkeypatch)
    workspace = unpack("schema_4.tar.xz", tmp_path)
    execute(workspace, "UPDATE campaigns SET device = ?", inventory.find("cpu").label)
    return campaigns_of.open_campaign(workspace, ID)


def states_on_line(setup: Setup) -> list[tuple[str, str]]:
    with campaigns.reading(setup) as reader:
        return [(member.form_of or member.id, member.state)
                for member in waiting_line.read(reader, ID)]


def candidate_of(setup: Setup, identity: str) -> Candidate:
    return next(entry for entry in campaigns.candidates(setup) if entry.id == identity)


def test_resumed_campaign_continues_from_the_gain_that_waited(setup: Setup) -> None:
    assert states_on_line(setup) == [] and candidate_of(setup, LARGE).state == "waiting"
    assert campaigns.run(setup).error is None
    large = candidate_of(setup, LARGE)
    assert large.state == "waiting" and large.base_commit == setup.repo.best
    assert costs_at(setup, large.commit) == {"A": 10.0}
    assert setup.repo.log(setup.repo.tip, setup.repo.base)[0] == large.commit
    kinds = [d.kind for d in past(setup).decisions if d.candidate == LARGE]
    assert kinds == ["ask", "runner-up", "ask"]
    assert states_on_line(setup) == [(LARGE, "waiting"), (SMALL, "provisional")]
    assert campaigns.campaign(setup).state == "waiting" and campaigns.consistent(setup) == []


def test_gain_that_waited_can_be_approved_before_anything_else(setup: Setup) -> None:
    done = kopt("approve", LARGE, "--wait", "100", workspace=setup.workspace)
    assert (done.returncode, done.stdout) == (
        0, f"approve {LARGE}: kept; kopt resume {ID} goes on from the new best\n"), done.stderr
    assert campaigns.until(lambda: now(setup, candidate_of(setup, LARGE)).state == "kept")
    assert costs_at(setup, candidate_of(setup, LARGE).commit) == {"A": 10.0}
    [kept] = [d for d in past(setup).keeps if d.candidate == LARGE]
    assert kept.round == 2 and "@" in kept.actor
