"""What models cost is added up by attempt; an unknown price stays visible in every sum."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.journal import model_costs
from engine.journal.model_costs import ModelBill
from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.task import ModelAnswer
from tests.support.dashboards import samples


def answer(cost_usd: float | None, *, slot: str = "fixed", attempt: int = 1, round: int = 2,
           model: str = "m") -> ModelAnswer:
    return ModelAnswer(round=round, slot=slot, attempt=attempt, model=model, cost_usd=cost_usd,
                       tokens_read=10, tokens_written=3)


def record_answers(workspace: Path, *answers: ModelAnswer) -> Reader:
    writer = Writer(workspace)
    writer.add_campaign(samples.campaign())
    for each in answers:
        writer.model_spent("rms", each)
    writer.close()
    return Reader(workspace)


def test_answers_add_up_by_attempt_round_and_campaign(tmp_path: Path) -> None:
    reader = record_answers(tmp_path, answer(0.25), answer(0.5), answer(0.125, attempt=2),
                            answer(1.0, slot="planner", round=3))
    costs = reader.model_costs("rms")
    assert [(cost.round, cost.slot, cost.attempt, cost.steps, cost.cost_usd, cost.tokens_read,
             cost.tokens_written) for cost in costs] == [
        (2, "fixed", 1, 2, 0.75, 20, 6), (2, "fixed", 2, 1, 0.125, 10, 3),
        (3, "planner", 1, 1, 1.0, 10, 3)]
    assert reader.model_bills() == {"rms": model_costs.bill(costs)}
    assert model_costs.total(costs, 2) == "$1.88; $0.94 for each of 2 kept gains"
    assert model_costs.total(costs, 0) == "$1.88; no gain is kept"
    assert model_costs.of_round(costs, 2) == "$0.88"
    assert [row[-1] for row in model_costs.rows(costs)] == ["$0.88", "$1.00"]


def test_sum_with_an_unknown_price_is_stated_as_a_minimum(tmp_path: Path) -> None:
    reader = record_answers(tmp_path, answer(0.42), answer(None, attempt=2), answer(0.5, attempt=2))
    costs = reader.model_costs("rms")
    assert [(cost.unpriced, cost.cost_usd) for cost in costs] == [(0, 0.42), (1, 0.5)]
    assert str(reader.model_bills()["rms"]) == "at least $0.92, price of 1 attempt unknown"
    assert model_costs.total(costs, 1) == "at least $0.92, price of 1 attempt unknown; " \
        "at least $0.92 for each of 1 kept gain"


@pytest.mark.parametrize(("bill", "words", "short"), [
    (ModelBill(), "", ""), (ModelBill(attempts=1, cost_usd=0.0035), "$0.0035", "$0.0035"),
    (ModelBill(attempts=1, unpriced=1), "price unknown", "$?"),
    (ModelBill(attempts=3, unpriced=2), "price of 2 attempts unknown", "$?"),
    (ModelBill(attempts=3, unpriced=1, cost_usd=12), "at least $12.00, price of 1 attempt unknown",
     "≥ $12.00")])
def test_bill_states_unknown_prices(bill: ModelBill, words: str, short: str) -> None:
    assert (str(bill), bill.short) == (words, short)
