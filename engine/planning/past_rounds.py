"""What earlier rounds mean for the next plan: directions followed, ideas lost, scores of slots."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.history.history import CampaignHistory
from engine.history.round_resume import OUTAGE
from engine.journal.read import Reader
from engine.journal.records import Slot
from engine.planning import stagnation
from engine.planning.plan_inputs import IMPLAUSIBLE, SlotKindStats
from engine.planning.stagnation import TriedDirections
from engine.repository.campaign_repo import CampaignRepo
from engine.task import AGENT_BACKENDS

LOST_STAGES = ("no change", "tie", "regression", "reject", "repeat")
"""Last stages of a slot that worked without a gain."""
FAILURES = 3
"""Most rejected changes that a plan retries."""


def tried(past: CampaignHistory, reader: Reader, campaign: str,
          repo: CampaignRepo) -> TriedDirections:
    """Return the directions that slots of ended rounds have followed on the provisional best, and
    the knobs, transformations and ideas that have lost on any best.
    """
    tree = repo.tree_of(repo.tip)
    on_tip = {commit for commit in {round.incumbent for round in past.attempts}
              if repo.has_tree(commit, tree)}
    slots = {round: [slot for slot in reader.slots(campaign, round.n) if slot.stage != OUTAGE]
             for round in past.attempts}
    lost = [slot for of_round in slots.values() for slot in of_round if slot.stage in LOST_STAGES]
    return msgspec.structs.replace(
        TriedDirections.of(slot for round, of_round in slots.items()
                           if round.incumbent in on_tip for slot in of_round),
        lost=frozenset(frozenset(slot.knobs) for slot in lost if slot.knobs),
        lost_transforms=stagnation.transforms_of(lost),
        lost_ideas=frozenset(slot.idea for slot in lost if slot.idea))


def scores(past: CampaignHistory, slots: Sequence[Slot], last: int) -> tuple[SlotKindStats,
                                                                             SlotKindStats]:
    """Return the results of planned slots and of others in round `last`, without the inbox.

    A slot counts once, with its best plausible speedup: a runner-up that was tried again, or a
    split, is no second success.
    """
    planned = {slot.slot: slot.kind == "planned" for slot in slots if slot.backend != "inbox"}
    best: dict[str, float] = {}
    for row in past.verdicts.values():
        candidate = past.candidates.get(row.candidate)
        if candidate is not None and candidate.round == last and row.purpose == "verify" \
                and row.speedup is not None and candidate.slot in planned:
            best[candidate.slot] = max((best.get(candidate.slot, 0.0), row.speedup),
                                       key=lambda speedup: (speedup < IMPLAUSIBLE, speedup))
    of_planned, of_others = (SlotKindStats(
        speedups=tuple(speedup for slot, speedup in best.items() if planned[slot] is kind),
        slots=list(planned.values()).count(kind)) for kind in (True, False))
    return of_planned, of_others


def since_stop(past: CampaignHistory, reader: Reader, campaign: str) -> int:
    """Return how many rounds have begun since the campaign stopped last and a person resumed it.

    What made slots fail before, such as a provider or a budget, may be mended.
    """
    stops = reader.events_of(campaign, "campaign.stop")
    return sum(1 for round in past.attempts if not stops or round.started_at > stops[-1].at)


def given_up(past: CampaignHistory, reader: Reader, campaign: str) -> tuple[Slot, ...]:
    """Return the slots of agents that ended without a change, in their order."""
    return tuple(slot for round in past.attempts for slot in reader.slots(campaign, round.n)
                 if slot.stage == "no change" and slot.backend in AGENT_BACKENDS)


def failures(past: CampaignHistory) -> tuple[str, ...]:
    """Return the newest changes that were rejected as wrong, each with the reason."""
    newest = {decision.candidate: decision for decision in past.decisions}
    wrong = [decision for decision in newest.values() if decision.kind == "reject"
             and decision.actor == "engine" and not decision.is_fault
             and decision.candidate in past.candidates]
    by_hypothesis = {past.candidates[decision.candidate].hypothesis: decision.reason
                     for decision in sorted(wrong, key=lambda decision: decision.at)}
    return tuple(f"{hypothesis}; it was rejected: {reason}"
                 for hypothesis, reason in reversed(by_hypothesis.items()))[:FAILURES]
