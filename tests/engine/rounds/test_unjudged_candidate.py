"""One candidate that a fault leaves unjudged does not end the campaign; a second in a row does."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.verify.harness_client import HarnessFault
from harness.requests import ErrorLine
from tests.support.engines import campaigns, instant_verdicts

LOST = "reference.py:scale: the reference failed: AcceleratorError: CUDA error: out of memory"


@pytest.mark.slow
@pytest.mark.parametrize(("unjudged", "state"), [(1, "finished"), (2, "failed")])
def test_second_candidate_in_a_row_with_the_same_fault_ends_the_campaign(
        unjudged: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unjudged_marks = [tree for tree in ("scale 9", "scale 8")][:unjudged]

    def cost(setup: Setup, tree: str) -> float:
        source = setup.repo.read(tree, "scale.c").decode()
        if any(mark in source for mark in unjudged_marks):
            raise HarnessFault(ErrorLine(what=LOST, exit_code=2, may_pass=True))
        return instant_verdicts.passes(setup, tree)

    instant_verdicts.install(monkeypatch, cost)
    setup = campaigns.create(tmp_path, max_iterations=4,
                             pool={"slots": 1, "backends": ["inbox"]})
    for number in (9, 8, 7):
        campaigns.hand_in(setup, f"{campaigns.FASTER}/* scale {number} */\n", f"given-{9 - number}")
    campaigns.run(setup)
    ended = campaigns.campaign(setup)
    assert ended.state == state, ended.reason
    reasons = [candidate.reason for candidate in campaigns.candidates(setup, "closed")]
    assert f"could not be judged: {LOST}" in reasons
    if unjudged == 1:
        assert campaigns.candidates(setup, "kept")
    else:
        assert LOST in ended.reason
