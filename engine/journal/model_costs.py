"""What language models cost: a row for each attempt and model, and the sum, also as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from engine.journal.records import JournalRow
from harness.formats.quantities import counted, dollars

HEAD = ("round", "model", "attempts", "answers", "tokens read", "tokens written", "cost")


class ModelCost(JournalRow, frozen=True, kw_only=True):
    """What one attempt of a slot spent on one model, updated after each answer.

    Answers that were cut off or failed are not in it: a provider does not state their price.
    """

    TABLE = "model_costs"
    campaign: str
    round: int
    slot: str
    attempt: int
    model: str
    steps: int
    """Answers of the model."""
    unpriced: int
    """Answers whose price is unknown."""
    cost_usd: float
    """The cost of all other answers."""
    tokens_read: int
    tokens_written: int


class ModelBill(msgspec.Struct, frozen=True, kw_only=True):
    """The sum over attempts; `unpriced` of them have answers whose price is unknown."""

    attempts: int = 0
    unpriced: int = 0
    cost_usd: float = 0.0

    def __str__(self) -> str:
        """Return the sum in words, "" where no model was asked."""
        if not self.unpriced:
            return dollars(self.cost_usd) if self.attempts else ""
        unknown = "price" if self.attempts == 1 else f"price of {counted(self.unpriced, 'attempt')}"
        return f"at least {dollars(self.cost_usd)}, {unknown} unknown" if self.cost_usd else \
            f"{unknown} unknown"

    @property
    def short(self) -> str:
        """Return the sum in a few characters, "" where no model was asked."""
        known = dollars(self.cost_usd)
        return "" if not self.attempts else known if not self.unpriced else \
            f"≥ {known}" if self.cost_usd else "$?"


def bill(costs: Iterable[ModelCost]) -> ModelBill:
    """Return the sum over attempts."""
    costs = list(costs)
    return ModelBill(attempts=len(costs), unpriced=sum(cost.unpriced > 0 for cost in costs),
                     cost_usd=sum(cost.cost_usd for cost in costs))


def total(costs: Iterable[ModelCost], gains: int) -> str:
    """Return what models cost together and for each of the kept gains, "" if none was asked."""
    whole = bill(costs)
    if not whole.cost_usd:
        return str(whole)
    least = "at least " if whole.unpriced else ""
    return f"{whole}; " + (f"{least}{dollars(whole.cost_usd / gains)} for each of "
                          f"{counted(gains, 'kept gain')}" if gains else "no gain is kept")


def of_round(costs: Iterable[ModelCost], n: int) -> str:
    """Return what models cost in a round, "" if none was asked."""
    return str(bill(cost for cost in costs if cost.round == n))


def rows(costs: Sequence[ModelCost]) -> list[tuple[str, ...]]:
    """Return a row for each round and model."""
    groups: dict[tuple[int, str], list[ModelCost]] = {}
    for cost in costs:
        groups.setdefault((cost.round, cost.model), []).append(cost)
    return [(str(n), model, str(len(group)), str(sum(cost.steps for cost in group)),
             str(sum(cost.tokens_read for cost in group)),
             str(sum(cost.tokens_written for cost in group)), str(bill(group)))
            for (n, model), group in groups.items()]
