"""What coding agents say their models cost counts in `budget.cost_usd`, and ends them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.journal.model_costs import ModelBill
from tests.support.engines import campaigns, instant_verdicts
from tests.support.paths import SUPPORT


def create(root: Path, name: str, **fields: object) -> Setup:
    return campaigns.create(root, max_iterations=3, pool={
        "slots": 2, "workers": 2, "backends": ["cli"], "cli": [{
            "name": "coder", "template": "generic",
            "command": f"{{python}} {SUPPORT}/agents/streaming_agent.py {name} {{prompt}}"}]},
        **fields)


def test_agents_end_and_none_begins_once_their_reported_costs_use_up_the_budget(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instant_verdicts.install(monkeypatch)
    setup = create(tmp_path, "spends", budget={"pairs": 4, "cost_usd": 0.5})
    campaigns.run(setup)
    with campaigns.reading(setup) as reader:
        bill = reader.model_bills()[setup.id]
        costs = reader.model_costs(setup.id)
    assert {cost.model for cost in costs} == {"generic"}
    assert bill.cost_usd >= 0.5 and bill.unpriced == 0
    assert sum(cost.steps for cost in costs) * 0.3 == pytest.approx(bill.cost_usd)
    assert campaigns.campaign(setup).reason.startswith("budget: ")
    ends = {detail.split(" after ")[0] for _, detail in campaigns.slots(setup).values()}
    assert ends <= {"coder was stopped"} and ends, campaigns.slots(setup)


def test_log_warns_of_an_agent_that_does_not_say_what_it_costs(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instant_verdicts.install(monkeypatch)
    setup = create(tmp_path, "unpriced")
    campaigns.run(setup)
    with campaigns.reading(setup) as reader:
        bill = reader.model_bills()[setup.id]
        warnings = [message for event in reader.last_events(setup.id, 500)
                    if event.kind == "warning" and b"price" in event.payload
                    for message in [json.loads(event.payload)["message"]]]
    assert bill == ModelBill(attempts=bill.attempts, unpriced=bill.attempts)
    assert warnings == ["the price of generic is unknown: cost limits do not count it"]
