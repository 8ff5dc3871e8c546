"""What the answers of language models cost: a row for each attempt, and their sum."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from engine.journal.records import JournalRow
from harness.formats.quantities import counted, dollars


class ModelCost(JournalRow, frozen=True, kw_only=True):
    """What one attempt of a slot asked one model, recorded after each answer.

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
    """Those of them whose price is unknown."""
    cost_usd: float
    """What the others cost."""
    tokens_read: int
    tokens_written: int


class ModelBill(msgspec.Struct, frozen=True, kw_only=True):
    """What attempts have cost together; the price of `unpriced` of them is unknown, or in part."""

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
    """Return the sum of attempts."""
    costs = list(costs)
    return ModelBill(attempts=len(costs), unpriced=sum(own.unpriced > 0 for own in costs),
                     cost_usd=sum(own.cost_usd for own in costs))
