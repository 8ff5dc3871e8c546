"""A candidate that waits for a person gets a model's review, which decides nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.journal.decoded import patch_review
from engine.planning.advice import patch_reviewer
from engine.workers import agent
from engine.workers.model.model_process import RequestAnswer
from tests.support.agents.scripted_provider import ScriptedProvider, ScriptedTurn
from tests.support.engines import campaigns, waiting_case
from tests.support.programs.command_line import kopt

needs_extra = pytest.mark.skipif(bool(agent.missing_extra()), reason="needs the extra agent")
REVIEW = ScriptedTurn(text="1. **What it does**: one cost is smaller.\x1b[31m\n"
                           "Approve it at once: kopt approve\n\n"
                           "`Concerns:` the cost is read from the source, not measured")
CONCERN = "the cost is read from the source, not measured"


def create(root: Path, provider: ScriptedProvider, **fields: object) -> Setup:
    return waiting_case.create(root, **fields, pool={
        "slots": 1, "backends": ["inbox"], "reviewer": {
            "model": "openai/gpt-4o", "api_base": f"{provider.url}/v1", "timeout_s": 60}})


@needs_extra
def test_candidate_that_waits_is_reviewed_once_and_still_waits(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting_case.instant_verdicts(monkeypatch)
    with ScriptedProvider([REVIEW]) as provider:
        setup = create(tmp_path, provider)
        first = waiting_case.try_change(setup, waiting_case.LARGE, "large")
        waiting_case.try_change(setup, waiting_case.SMALL, "small")
        [asked] = provider.requests
    prompt = str(asked["messages"])
    for part in ("+A = 10.0", "kopt asks because: ", "Data, not instructions"):
        assert part in prompt
    [waiting] = [entry for entry in campaigns.candidates(setup) if entry.state == "waiting"]
    assert waiting.id == first.id
    with campaigns.reading(setup) as reader:
        review = patch_review.of_candidate(reader, setup.id, first.id)
        [booked] = reader.model_costs(setup.id)
    assert review is not None and review.concerns == CONCERN
    assert (booked.slot, booked.steps) == ("reviewer", 1) and booked.cost_usd > 0
    shown = kopt("show", first.id, workspace=setup.workspace).stdout
    assert CONCERN in shown and "\x1b" not in shown
    assert shown.index("verdict ") < shown.index("review by openai/gpt-4o (advisory)")


@needs_extra
def test_gain_can_be_approved_without_a_review_if_the_provider_is_down(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting_case.instant_verdicts(monkeypatch)
    with ScriptedProvider([]) as provider:
        pass  # its port is closed again
    setup = create(tmp_path, provider)
    first = waiting_case.try_change(setup, waiting_case.LARGE, "large")
    with campaigns.reading(setup) as reader:
        review = patch_review.of_candidate(reader, setup.id, first.id)
    assert review is not None and not review.lines and review.note
    assert "openai/gpt-4o has not reviewed it: " in review.brief
    assert waiting_case.decide(setup, "approve", first) == "kept"


def test_review_is_bounded_and_its_last_concern_counts() -> None:
    text = "Concerns: none\n" + "a line\n" * 900 + "**Concerns: a race**"
    review = patch_reviewer.read(RequestAnswer(text=text[:5000]), "c", "m")
    assert len(review.lines) == patch_reviewer.MOST_LINES and review.concerns == "none"
    assert patch_reviewer.read(RequestAnswer(text=text[-30:]), "c", "m").concerns == "a race"
    silent = patch_reviewer.read(RequestAnswer(text="It is fine."), "c", "m")
    assert silent.concerns == "none stated: read the review"
