"""The plan of a round as its event records it: slots by kind, weights, routing of rewrites."""

from __future__ import annotations

import msgspec

from engine.journal.read import Reader

KIND = "plan"
"""The kind of the event with a round's plan."""


class RoundPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a `plan` event: a round's slots by kind, and how they were chosen."""

    round: int
    planned: int
    rewrites: int
    fixed: int
    split: str
    """Why so many slots are planned, with the weights."""
    planned_weight: float
    fixed_weight: float
    """Best plausible speedup times success rate, of planned slots and of all others."""
    routing: str

    def __str__(self) -> str:
        counts = ((self.planned, "planned"), (self.rewrites, "rewrite"), (self.fixed, "fixed"))
        return f"{', '.join(f'{count} {kind}' for count, kind in counts if count)} ({self.split})"


def last(reader: Reader, campaign: str) -> RoundPlan | None:
    """Return the plan of a campaign's newest round, None if none is recorded."""
    events = reader.events_of(campaign, KIND)
    return msgspec.json.decode(events[-1].payload, type=RoundPlan) if events else None
