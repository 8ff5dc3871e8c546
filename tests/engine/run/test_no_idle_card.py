"""A slot without an idle card ends the campaign once the work of others in flight is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.campaign.setup import Setup
from engine.rounds.round import RUNNING_STAGES
from engine.verify.fleet import Fleet
from engine.verify.fleet_device import NoDeviceAvailable
from tests.support.engines import campaigns

AGENT = "sh -c 'test -f {prompt}; sleep SECONDS; sed -i \"s/PASSES 16/PASSES 1/\" scale.c'"
AGENTS_ONLY = campaigns.KERNEL.replace(
    "  /* kopt: knob PASSES in [1, 16] times that all is computed */", "")
"""A kernel whose search finds nothing as good as the agent's change."""
NO_IDLE_GPU = "no idle GPU for 60:00 min"
plain_run = Fleet.run


def create(root: Path, seconds: float) -> Setup:
    """Create a campaign with a search, and an agent that works without a card."""
    assert AGENTS_ONLY != campaigns.KERNEL
    return campaigns.create(root, kernel=AGENTS_ONLY, pool={
        "slots": 2, "trials": 3, "workers": 2, "backends": ["search", "cli"],
        "cli": [{"name": "agent", "command": AGENT.replace("SECONDS", str(seconds))}]})


def without_cards(monkeypatch: pytest.MonkeyPatch, *uses: str, after: int = 0) -> list[str]:
    """Make all cards busy for these uses, except for the first `after` of each."""
    requested_uses: list[str] = []

    def run(self: Fleet, use: Any, work: Any, **more: Any) -> Any:
        requested_uses.append(use)
        if use in uses and requested_uses.count(use) > after:
            raise NoDeviceAvailable(NO_IDLE_GPU)
        return plain_run(self, use, work, **more)

    monkeypatch.setattr(Fleet, "run", run)
    return requested_uses


@pytest.mark.slow
def test_work_in_flight_is_finished_and_judged(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = create(tmp_path, 3.0)
    with monkeypatch.context() as cards:
        requested_uses = without_cards(cards, "loop")
        assert campaigns.run(setup).error is None
        assert "loop" in requested_uses
    ended = campaigns.campaign(setup)
    assert (ended.state, ended.reason) == ("stopped", NO_IDLE_GPU)
    [found] = campaigns.candidates(setup)
    assert found.state == "verified" and found.slot != "fixed"
    assert campaigns.run(setup).error is None
    assert campaigns.campaign(setup).state == "finished"
    assert found.id in {candidate.id for candidate in campaigns.candidates(setup, "kept")}
    stages = {slot: stage for slot, (stage, _) in campaigns.slots(setup).items()}
    assert stages[found.slot] == "kept" and stages["fixed"] not in ("queued", "waiting")
    campaigns.consistent(setup)


@pytest.mark.slow
def test_next_engine_judges_candidates_for_which_no_card_was_idle(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = create(tmp_path, 0.0)
    with monkeypatch.context() as cards:
        without_cards(cards, "verdict", after=1)  # after the baseline's verdict
        assert campaigns.run(setup).error is None
    assert campaigns.campaign(setup).reason == NO_IDLE_GPU
    undecided = campaigns.candidates(setup)
    assert undecided and {candidate.state for candidate in undecided} == {"captured"}
    assert campaigns.slots(setup)["fixed"][0] not in RUNNING_STAGES  # it has ended too
    assert campaigns.run(setup).error is None
    assert campaigns.campaign(setup).state == "finished"
    assert not campaigns.candidates(setup, "captured", "verified")
    assert campaigns.candidates(setup, "kept")
    campaigns.consistent(setup)
