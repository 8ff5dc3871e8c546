"""The plan of a round as its event records it: slots by kind, weights, routing of rewrites."""

from __future__ import annotations

import msgspec

from engine.journal.read import Reader

KIND = "plan"
"""The kind of the event with a round's plan."""


class SuggestedIdea(msgspec.Struct, frozen=True, kw_only=True):
    """A hypothesis that a model proposed for a round; `bottleneck` is the id of what it attacks."""

    text: str
    bottleneck: str = ""


class RoundPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a `plan` event: a round's slots by kind, and how they were chosen."""

    round: int
    planned: int
    rewrites: int
    fixed: int
    split: str
    """What decided how many slots are planned, such as `mode fixed` or the weights."""
    planned_weight: float
    fixed_weight: float
    """Best plausible speedup times success rate, of planned slots and of all others."""
    routing: str
    idle: str = ""
    """How many slots are left empty, and why, or which agents are left out; "" for none."""
    model: str = ""
    """The outcome of asking a model for hypotheses, "" if none was asked."""
    suggested: tuple[SuggestedIdea, ...] = ()
    """The hypotheses used from its answer, for a round that is resumed."""
    analysis: str = ""
    """The outcome of asking a model what limits the best, "" if none was asked."""
    causes: tuple[str, ...] = ()
    """The causes that this model names for the times of the commit `surveyed`."""
    surveyed: str = ""

    def __str__(self) -> str:
        counts = ((self.planned, "planned"), (self.rewrites, "rewrite"), (self.fixed, "fixed"))
        slots = ", ".join(f"{count} {kind}" for count, kind in counts if count)
        return "; ".join(filter(None, (
            slots, self.idle, self.analysis, self.model, self.split)))


def of_round(reader: Reader, campaign: str, n: int) -> RoundPlan | None:
    """Return the plan of round `n` if it was recorded before, as in a round that is resumed."""
    plan = last(reader, campaign)
    return plan if plan is not None and plan.round == n else None


def last(reader: Reader, campaign: str) -> RoundPlan | None:
    """Return the plan of a campaign's newest round, None if none is recorded."""
    event = reader.newest_event(campaign, KIND)
    return None if event is None else event.decoded(RoundPlan)
