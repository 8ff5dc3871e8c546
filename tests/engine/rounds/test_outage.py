"""A campaign waits for a model's provider that is down, and ends where waiting mends nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.coding_agents import agent_stream
from engine.manifest.pool_schema import PoolSpec
from engine.planning import outages as outages_of
from engine.planning.planner import FRUITLESS
from engine.planning.pool_size import Author
from engine.workers import agent
from engine.workers.model import model_process
from harness.isolation import guard
from kopt_tui.snapshot import event_words
from tests.support.agents import agent_case
from tests.support.agents.scripted_provider import ScriptedProvider, ScriptedTurn
from tests.support.engines import campaigns, instant_verdicts
from tests.support.programs.command_line import kopt

FASTER = ScriptedTurn(command="sed -i 's/PASSES 16/PASSES 1/' scale.c")
DOWN = ScriptedTurn(fault="500")
AN_HOUR = {"outage_pause_s": 3600}
needs_agent = pytest.mark.skipif(bool(agent.missing_extra()), reason="needs the extra agent")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute verdicts; let an attempt give up after one request."""
    instant_verdicts.install(monkeypatch)
    monkeypatch.setattr(model_process, "RETRIES", 0)


def outages(setup: Setup) -> list[str]:
    """Return the messages about providers that did not answer."""
    return [json.loads(event.payload)["message"] for event in campaigns.events(setup)
            if event.kind == "outage"]


@needs_agent
def test_rounds_lost_to_an_outage_do_not_count_and_the_campaign_goes_on_after_it(
        tmp_path: Path) -> None:
    with ScriptedProvider([DOWN, DOWN, DOWN, FASTER]) as provider:
        setup = agent_case.create(tmp_path, provider, max_iterations=1,
                                  pool={"outage_pause_s": 0.05})
        campaigns.run(setup)
    ended = campaigns.campaign(setup)
    assert campaigns.candidates(setup, "kept") and len(outages(setup)) == 3
    assert (ended.reason, ended.iteration_place) == (
        "max_iterations: 1 round done, besides 3 without a provider's answer", "4 of 4")


@needs_agent
def test_campaign_that_waits_says_so_takes_patches_and_stops_at_once(tmp_path: Path) -> None:
    with ScriptedProvider([DOWN] * 9) as provider:
        setup = agent_case.create(tmp_path, provider, pool={
            **AN_HOUR, "backends": ["agent", "inbox"]}, max_iterations=9)
        with campaigns.running(setup):
            campaigns.until(lambda: "waiting for a model's provider" in
                            campaigns.campaign(setup).phase)
            for verb in ("show", "status"):
                shown = kopt(verb, setup.id, workspace=setup.workspace).stdout
                assert "waiting for a model's provider; agent: tried again at " in shown, shown
            assert "agent: tried again at" in kopt(
                "events", setup.id, "--kind", "outage", workspace=setup.workspace).stdout
            campaigns.hand_in(setup)
            campaigns.until(lambda: campaigns.candidates(setup, "kept"))
            for verb, state in (("pause", "paused"), ("resume", "running")):
                assert not campaigns.command(verb, setup.id, workspace=setup.workspace)[0]
                campaigns.until(lambda state=state: campaigns.campaign(setup).state == state)
            assert not campaigns.command("stop", setup.id, workspace=setup.workspace)[0]
            campaigns.until(lambda: campaigns.campaign(setup).state == "stopped", 20)
    assert len(provider.requests) == 1


@needs_agent
def test_search_goes_on_while_a_provider_is_down(tmp_path: Path) -> None:
    with ScriptedProvider([DOWN] * 2) as provider:
        setup = agent_case.create(tmp_path, provider, slots=3, max_iterations=9, pool={
            **AN_HOUR, "backends": ["agent", "search"]})
        with campaigns.running(setup):
            campaigns.until(lambda: "waiting for a model's provider" in
                            campaigns.campaign(setup).phase)
        assert campaigns.candidates(setup, "kept")
        with campaigns.reading(setup) as reader:
            backends = {slot.backend for slot in reader.slots(setup.id) if slot.round > 2}
        assert backends == {"search"}
        assert any("without agent: no answer from the model's provider" in event_words.event(event)
                   for event in campaigns.events(setup))
        asked = len(provider.requests)
        campaigns.run(setup)  # the rounds without the agent do not count against it
    assert len(provider.requests) > asked


@needs_agent
def test_outage_ends_a_campaign_after_a_stated_time_and_a_resumed_one_tries_again(
        tmp_path: Path) -> None:
    turns = [DOWN] * 2
    with ScriptedProvider(lambda messages: turns.pop() if turns else FASTER) as provider:
        setup = agent_case.create(tmp_path, provider, max_iterations=1, pool={
            "outage_s": 0.1, "outage_pause_s": 3600.0})
        campaigns.run(setup)
        assert campaigns.campaign(setup).reason.startswith(
            "no provider of a model has answered for 0.1 s (pool.outage_s); kopt resume asks "
            "again; agent: openai/gpt-4o")
        turns[:] = []
        campaigns.run(setup)
    assert campaigns.candidates(setup, "kept")


@needs_agent
def test_a_refused_key_ends_the_campaign_soon(tmp_path: Path) -> None:
    with ScriptedProvider([ScriptedTurn(fault="401")] * 9) as provider:
        setup = agent_case.create(tmp_path, provider, max_iterations=9, pool=AN_HOUR)
        campaigns.run(setup)
    assert "AuthenticationError" in campaigns.campaign(setup).reason
    assert len(provider.requests) == FRUITLESS and not outages(setup)


@pytest.mark.skipif(bool(guard.confinement_problem()), reason="needs user namespaces")
def test_command_that_cannot_connect_to_its_provider_has_an_outage(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path, max_iterations=9, pool={
        "slots": 1, "mode": "fixed", "backends": ["cli"], **AN_HOUR, "cli": [{
            "name": "a", "network": ["127.0.0.1:9"],
            "command": "bash -c 'exec 3<>/dev/tcp/127.0.0.1/9 && read -u 3' {prompt}"}]})
    with campaigns.running(setup):
        campaigns.until(lambda: outages(setup))
    assert outages(setup)[0].startswith("a: tried again at ")


def test_clock_that_was_set_back_makes_no_pause_longer() -> None:
    outage = outages_of.Outage(author=Author("agent"), reason="busy", began_at=9000.0,
                               tried_at=9010.0, retry_at=9040.0)
    assert [outage.waits(now) for now in (9010.0, 9039.0, 9040.0)] == [True, True, False]
    assert not outage.waits(9010.0 - 36_000), "it waited for ten hours and 30 s"


def test_pauses_double_up_to_a_quarter_of_an_hour() -> None:
    assert [outages_of.pause_s(PoolSpec(), n) for n in range(1, 8)] == [
        30, 60, 120, 240, 480, 900, 900]


@pytest.mark.parametrize(("error", "passes"), [
    ("API Error: 529 overloaded_error", True), ("API Error: Connection error.", True),
    ("exceeded retry limit, last status: 429 Too Many Requests", True),
    ("Request timed out", True), ("connect ECONNREFUSED 127.0.0.1:1", True),
    ("API Error: 401 invalid x-api-key", False), ("model gpt-99 does not exist", False),
    ("sh: claude: command not found", False), ("", False)])
def test_error_of_an_agent_says_whether_waiting_mends_it(error: str, passes: bool) -> None:
    assert agent_stream.is_outage(error) is passes
