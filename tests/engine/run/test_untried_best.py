"""A gain that is approved after nothing was left to try: kopt says whether the campaign goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.run import host
from tests.support.engines import campaigns, instant_verdicts
from tests.support.engines.campaigns import command


def approve(setup: Setup) -> str:
    """Approve what waits, wait for the end of the host, and return what was printed."""
    code, out, err = command("approve", workspace=setup.workspace)
    assert code == 0 and ": kept" in out, err
    campaigns.until(lambda: host.owner(setup.workspace, setup.id) is None)
    assert campaigns.campaign(setup).state == "finished"
    return " ".join(out.split())


def shown(setup: Setup) -> tuple[str, bool]:
    """Return what `kopt status` prints, and whether it says that the campaign can go on."""
    [status] = json.loads(command("status", "--json", workspace=setup.workspace)[1])["campaigns"]
    return " ".join(command("status", workspace=setup.workspace)[1].split()), \
        bool(status["has_untried_best"])


@pytest.mark.parametrize(("rounds", "goes_on"), [(9, True), (1, False)])
def test_approval_and_status_say_that_a_campaign_with_rounds_left_can_go_on(
        rounds: int, goes_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = campaigns.create(tmp_path, pool={"slots": 1, "backends": ["inbox"]},
                             max_iterations=rounds, approval="review")
    with monkeypatch.context() as patched:
        instant_verdicts.install(patched)
        assert campaigns.run(setup).error is None
        assert campaigns.campaign(setup).reason.startswith("nothing left to try")
        campaigns.hand_in(setup)
        assert campaigns.run(setup, decide_only=True).error is None
    words = f"kopt resume {setup.id} goes on from the new best"
    assert words not in shown(setup)[0]
    assert (f": kept; {words}" in approve(setup)) is goes_on
    text, has_untried = shown(setup)
    assert (words in text, has_untried) == (goes_on, goes_on)
    if goes_on:  # the advice holds until an engine has looked
        assert campaigns.run(setup).error is None
        assert words not in shown(setup)[0]


@pytest.mark.parametrize("rounds", [9, 1])
def test_gain_on_which_nothing_was_left_to_try_when_it_waited_brings_no_rounds(
        rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kopt approve` advised `kopt resume`, which answered that the campaign has ended."""
    setup = campaigns.create_with_patch(tmp_path, max_iterations=rounds, approval="review")
    with monkeypatch.context() as patched:
        instant_verdicts.install(patched)
        assert campaigns.run(setup).error is None
    assert campaigns.campaign(setup).reason.startswith("nothing left to try") is (rounds == 9)
    assert "kopt resume" not in approve(setup)
    text, has_untried = shown(setup)
    assert "goes on from the new best" not in text and not has_untried
    code, out, _ = command("resume", workspace=setup.workspace)
    assert code == 1 and "refused: the campaign has ended" in " ".join(out.split())
