"""A campaign counts and shows what its models cost, and ends when its budget is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.journal.model_costs import ModelBill
from engine.workers import agent
from tests.support.agents import agent_case
from tests.support.agents.scripted_provider import SUBMIT, ScriptedProvider, ScriptedTurn
from tests.support.engines import campaigns, instant_verdicts
from tests.support.engines.repair_case import start_engine
from tests.support.programs.command_line import kopt

KEY = "sk-planted-9876543210"
FASTER = "sed -i 's/PASSES 16/PASSES 1/' scale.c"
pytestmark = [pytest.mark.slow,
              pytest.mark.skipif(bool(agent.missing_extra()), reason="needs the extra agent")]


def spent(setup: Setup) -> ModelBill:
    with campaigns.reading(setup) as reader:
        return reader.model_bills().get(setup.id, ModelBill())


def test_cost_is_recorded_answer_by_answer_shown_and_limited(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_KEY", KEY)
    turns = [ScriptedTurn(command=f"echo {KEY}"), ScriptedTurn(fault="silent"),
             ScriptedTurn(command=FASTER), ScriptedTurn(command=SUBMIT),
             *[ScriptedTurn(command="true")] * 40]
    with ScriptedProvider(turns) as provider:
        setup = agent_case.create(
            tmp_path, provider, agent={"key_env": "AGENT_KEY"}, slots=2, max_iterations=9,
            budget={"pairs": 4, "cost_usd": 0.01})
        killed = start_engine(setup)
        try:
            campaigns.until(lambda: len(provider.requests) == 2)
            campaigns.until(lambda: spent(setup).cost_usd == pytest.approx(0.0035))
        finally:
            killed.kill()
            killed.wait(30)
        instant_verdicts.install(monkeypatch)
        campaigns.run(setup)
        ended = campaigns.campaign(setup)
        assert (ended.state, ended.reason) == (
            "finished", "budget: $0.0105 of $0.01 used by models")
        assert spent(setup) == ModelBill(attempts=2, cost_usd=pytest.approx(0.0105))
        stages = campaigns.slots(setup)
        [late] = [detail for stage, detail in stages.values() if stage == "not begun"]
        assert late == "$0.0105 of $0.01 used by models"
        assert any(stage == "kept" for stage, _ in stages.values()), stages

        shown = {verb: kopt(verb, setup.id, workspace=setup.workspace).stdout
                 for verb in ("status", "show", "report")}
        assert "models $0.0105" in shown["status"]
        for verb in ("show", "report"):
            assert "$0.0105; $0.0105 for each of 1 kept gain" in shown[verb]
        [row] = json.loads(kopt("status", setup.id, "--json",
                                workspace=setup.workspace).stdout)["campaigns"]
        assert row["models"] == {"attempts": 2, "unpriced": 0,
                                 "cost_usd": pytest.approx(0.0105)}
        summary = setup.folder.round(2) / "summary.md"
        assert "trials, models $0.0105\n" in summary.read_text()
        assert "trials, models $0.0105\n" in setup.folder.performance.read_text()
        before = {path: path.read_bytes() for path in (
            summary, setup.folder.performance, setup.folder.report, setup.folder.page)}
        for path in before:
            path.unlink()
        assert kopt("report", setup.id, "--records", workspace=setup.workspace).returncode == 0
        assert {path: path.read_bytes() for path in before} == before

        printed = kopt("set", setup.id, "budget.cost_usd=0.02", "agent.step_limit=2",
                    workspace=setup.workspace).stdout
        assert "budget.cost_usd 0.01 → 0.02, pool.agent.step_limit 60 → 2" in printed
        campaigns.run(campaigns.campaigns.open_campaign(setup.workspace, setup.id))
        assert campaigns.campaign(setup).reason == "budget: $0.0210 of $0.02 used by models"
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
    assert KEY not in "".join(shown.values())
