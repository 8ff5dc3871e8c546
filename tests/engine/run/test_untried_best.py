"""A gain that is approved after nothing was left to try: kopt says that the campaign can go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.run import host
from tests.support import campaigns, instant_verdicts
from tests.support.campaigns import command


@pytest.mark.parametrize(("rounds", "goes_on"), [(9, True), (1, False)])
def test_approval_and_status_say_that_a_campaign_with_rounds_left_can_go_on(
        rounds: int, goes_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = campaigns.create_with_patch(tmp_path, max_iterations=rounds, approval="review")
    with monkeypatch.context() as patched:
        instant_verdicts.install(patched)
        assert campaigns.run(setup).error is None
    assert campaigns.campaign(setup).reason.startswith("nothing left to try") is goes_on
    words = f"kopt resume {setup.id} goes on from the new best"
    assert words not in " ".join(command("status", workspace=setup.workspace)[1].split())
    code, out, err = command("approve", workspace=setup.workspace)
    assert code == 0 and (f": kept; {words}" in " ".join(out.split())) is goes_on, err
    campaigns.until(lambda: host.owner(setup.workspace, setup.id) is None)
    assert campaigns.campaign(setup).state == "finished"
    out = command("status", workspace=setup.workspace)[1]
    assert (words in " ".join(out.split())) is goes_on
    [status] = json.loads(command("status", "--json", workspace=setup.workspace)[1])["campaigns"]
    assert status["has_untried_best"] is goes_on
    if goes_on:  # the advice holds until an engine has looked
        assert campaigns.run(setup).error is None
        assert words not in " ".join(command("status", workspace=setup.workspace)[1].split())
