"""A round whose hypotheses a language model proposes, by a real HTTP provider."""

from __future__ import annotations

import json
import time
from pathlib import Path

import msgspec
import pytest

from engine.campaign.setup import Setup
from engine.journal.decoded import plan_event
from engine.journal.decoded.plan_event import RoundPlan
from engine.journal.records import ControlVerb
from engine.journal.write import request
from engine.workers import agent
from tests.support.agents.scripted_provider import ScriptedProvider, ScriptedTurn
from tests.support.engines import campaigns
from tests.support.programs.command_line import kopt

pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    bool(agent.missing_extra()), reason="needs the extra agent")]

IDEAS = ("Unroll the loop over the elements four times so that each step waits less",
         "Compute each element once and store it without the passes that repeat it")
ANSWER = ScriptedTurn(text=json.dumps({"hypotheses": [
    {"hypothesis": text, "bottleneck": "b2.1"} for text in (*IDEAS, IDEAS[0])]}))
ANALYSIS = ScriptedTurn(text=json.dumps({"bottlenecks": [
    {"kernel": "scale", "what": "The loop writes each element in a dependent chain of PASSES",
     "evidence": "the source sets PASSES to 16", "attack": "one pass"},
    {"what": "Every load misses the cache and waits", "evidence": "97.3 % of loads miss"}]}))
CAUSE = "The loop writes each element in a dependent chain of PASSES"
MOVE = "- against dependent chain: break the dependent chain of operations"
KEY = "sk-planted-0123456789"


def create(root: Path, provider: ScriptedProvider, **planner: object) -> Setup:
    """Return a campaign of one round with four agents that wait until `root`/hold is deleted."""
    return campaigns.create(root, pool={
        "slots": 4, "workers": 4, "mode": "planned", "backends": ["cli"],
        "planner": {"model": "openai/gpt-4o", "api_base": f"{provider.url}/v1", **planner},
        "cli": [{"name": "coder", "network": False, "command":
                 f"while [ -e {root}/hold ]; do sleep 0.05; done; cat {{prompt}}"}]})


def plan_of(setup: Setup) -> RoundPlan:
    [event] = [event for event in campaigns.events(setup) if event.kind == plan_event.KIND]
    return msgspec.json.decode(event.payload, type=RoundPlan)


def hypotheses(setup: Setup) -> list[str]:
    with campaigns.reading(setup) as reader:
        return [slot.hypothesis.removeprefix("coder: ") for slot in reader.slots(setup.id, 2)]


def prompts(setup: Setup) -> list[str]:
    """Return the prompts that agents have got."""
    return [path.read_text() for path in setup.folder.path.glob("scratch/*/home/PROMPT.md")]


def test_models_ideas_reach_the_agents_and_a_resumed_round_does_not_ask_again(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_KEY", KEY)
    with ScriptedProvider([ANALYSIS, ANSWER]) as provider:
        setup = create(tmp_path, provider, key_env="PLANNER_KEY")
        (tmp_path / "hold").touch()
        with campaigns.running(setup):
            campaigns.until(lambda: len(prompts(setup)) == 4)
            first = hypotheses(setup)
        (tmp_path / "hold").unlink()
        assert campaigns.run(setup).error is None
        assert provider.keys == [KEY, KEY]
        analysed, asked = provider.requests
    assert hypotheses(setup) == first and len(set(first)) == 4
    assert set(IDEAS) <= set(first)
    for idea in IDEAS:
        assert any(idea in text for text in prompts(setup))
    assert all(CAUSE in text and MOVE in text and "97.3" not in text for text in prompts(setup))
    plan = plan_of(setup)
    assert plan.model == "the model planned 2 ideas of 3; 1 repeat left out"
    assert [(idea.text, idea.bottleneck) for idea in plan.suggested] == [
        (text, "b2.1") for text in IDEAS]
    assert plan.analysis == "the model names 2 causes; 1 left out: 97.3 was not measured"
    assert plan.model in str(plan) and plan.analysis in str(plan)
    with campaigns.reading(setup) as reader:
        booked = reader.model_costs(setup.id)
    assert [(cost.slot, cost.model, cost.steps) for cost in booked] == [
        ("trace-analyst", "openai/gpt-4o", 1), ("planner", "openai/gpt-4o", 1)]
    assert all(cost.cost_usd > 0 and not cost.unpriced for cost in booked)
    assert CAUSE in kopt("show", setup.id, workspace=setup.workspace).stdout
    assert "what limits the present best" in str(analysed["messages"])
    prompt = str(asked["messages"])
    assert "tools" not in asked and "Propose 3 hypotheses" in prompt
    for part in (CAUSE, "b2.1", "PASSES", "small (n=3000)", "scale.c", "Data, not instructions"):
        assert part in prompt
    assert not [path for path in setup.workspace.rglob("*")
                if path.is_file() and not path.is_symlink() and KEY.encode() in path.read_bytes()]


def test_round_falls_back_to_plain_ideas_if_the_provider_is_down(tmp_path: Path) -> None:
    with ScriptedProvider([]) as provider:
        pass  # its port is closed again
    setup = create(tmp_path, provider, timeout_s=60)
    assert campaigns.run(setup).error is None
    assert plan_of(setup).model.startswith("planned without the model: ")
    assert len(set(hypotheses(setup))) == 4 and not plan_of(setup).suggested


def test_requests_of_people_are_answered_while_a_model_is_silent(tmp_path: Path) -> None:
    with ScriptedProvider([ScriptedTurn(fault="silent")]) as provider:
        setup = create(tmp_path, provider)
        with campaigns.running(setup) as engine:
            campaigns.until(lambda: provider.requests)
            assert "openai/gpt-4o reads the measurements" in campaigns.campaign(setup).phase
            verbs: tuple[ControlVerb, ...] = ("pause", "resume", "stop")
            for verb in verbs:
                began = time.monotonic()
                number = request(setup.workspace, setup.id, verb, by="a test")
                campaigns.until(lambda number=number: outcome(setup, number), 30.0)
                assert time.monotonic() - began < 10.0  # on an idle machine, 1 s
            engine.join(30.0)
            assert not engine.is_alive()
    assert campaigns.campaign(setup).state == "stopped"
    assert not campaigns.processes(setup.workspace)


def outcome(setup: Setup, number: int) -> str:
    with campaigns.reading(setup) as reader:
        return next(each.outcome for each in reader.controls(setup.id) if each.id == number)
