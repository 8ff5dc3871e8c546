"""What a campaign's models cost, in words: in all, by kept gain, by round and model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.journal import model_costs
from engine.journal.model_costs import ModelCost
from harness.formats.quantities import counted, dollars

HEAD = ("round", "model", "attempts", "answers", "tokens read", "tokens written", "cost")


def total(costs: Iterable[ModelCost], gains: int) -> str:
    """Return what models cost together and for each of the kept gains, "" if none was asked."""
    bill = model_costs.bill(costs)
    if not bill.cost_usd:
        return str(bill)
    least = "at least " if bill.unpriced else ""
    return f"{bill}; " + (f"{least}{dollars(bill.cost_usd / gains)} for each of "
                          f"{counted(gains, 'kept gain')}" if gains else "no gain is kept")


def of_round(costs: Iterable[ModelCost], n: int) -> str:
    """Return what models cost in a round, "" if none was asked."""
    return str(model_costs.bill(own for own in costs if own.round == n))


def rows(costs: Sequence[ModelCost]) -> list[tuple[str, ...]]:
    """Return a row for each round and model."""
    groups: dict[tuple[int, str], list[ModelCost]] = {}
    for cost in costs:
        groups.setdefault((cost.round, cost.model), []).append(cost)
    return [(str(n), model, str(len(own)), str(sum(cost.steps for cost in own)),
             str(sum(cost.tokens_read for cost in own)),
             str(sum(cost.tokens_written for cost in own)), str(model_costs.bill(own)))
            for (n, model), own in groups.items()]
