"""When a campaign stops: counters over its rounds, and the reasons to stop."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from engine.journal.records import Round
from engine.manifest.schema import BudgetSpec, Manifest
from harness.formats.quantities import counted, dollars


class RoundCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counters over ended rounds except the baseline; the last two are of the latest in a row."""

    rounds: int = 0
    consecutive_regressions: int = 0
    without_gain: int = 0


class BudgetUsed(msgspec.Struct, frozen=True, kw_only=True):
    """What all engines of a campaign have used up together.

    `cost` is in the manifest's unit, `cost_usd` what models cost where their price is known.
    """

    wall_s: float = 0.0
    trials: int = 0
    cost: float = 0.0
    cost_usd: float = 0.0


NOTHING = BudgetUsed()


def tally(rounds: Sequence[Round], *, kept: Collection[int] = (), gained: Collection[int] = (),
          suspended: Collection[int] = ()) -> RoundCounts:
    """Count the rounds, the latest regressions in a row and the latest rounds without a gain.

    A round in `kept` has a kept candidate, perhaps kept by a person after the round; a round in
    `gained` has one that went onto the waiting line. Both end the streaks. Any other round in
    `suspended`, during which a gain waited for a person, neither extends nor ends them.
    """
    regressions = without_gain = attempts = 0
    for round in sorted(rounds, key=lambda round: round.n):
        if round.outcome in (None, "baseline"):
            continue
        attempts += 1
        if round.outcome == "keep" or round.n in kept or round.n in gained:
            regressions = without_gain = 0
        elif round.n not in suspended:
            regressions = regressions + 1 if round.outcome == "regression" else 0
            without_gain += 1
    return RoundCounts(rounds=attempts, consecutive_regressions=regressions,
                       without_gain=without_gain)


def reason_to_stop(manifest: Manifest, counts: RoundCounts, *, spent: BudgetUsed = NOTHING,
                   margin_s: float = 0.0, pct_of_roofline: float | None = None,
                   reached: str = "") -> str:
    """Return why the campaign stops now, or ""; `margin_s` is reserved for a round's verdicts."""
    stop = manifest.stop
    if reached:
        return f"performance_target {manifest.performance_target}: {reached}"
    if stop.efficiency_pct is not None and (pct_of_roofline or 0.0) >= stop.efficiency_pct:
        return f"efficiency: {pct_of_roofline:.0f}% of the roofline reached"
    if manifest.max_iterations is not None and counts.rounds >= manifest.max_iterations:
        return f"max_iterations: {counted(counts.rounds, 'round')} done"
    if counts.consecutive_regressions >= stop.consecutive_regressions:
        return f"{counts.consecutive_regressions} consecutive measured regressions"
    if stop.no_gain_rounds is not None and counts.without_gain >= stop.no_gain_rounds:
        return f"no gain in {counted(counts.without_gain, 'round')}"
    if reason := _over_budget(manifest, spent, margin_s):
        return f"budget: {reason}"
    return ""


def _over_budget(manifest: Manifest, spent: BudgetUsed, margin_s: float) -> str:
    budget = manifest.budget
    if budget.wall_s is not None and spent.wall_s + margin_s >= budget.wall_s:
        left = budget.wall_s - spent.wall_s
        rest = "" if left <= 0 else \
            f"; the remaining {left:.0f} s are too short for a round's verdicts"
        return f"{spent.wall_s:.0f} s of {budget.wall_s:g} s used{rest}"
    if budget.trials is not None and spent.trials >= budget.trials:
        return f"{spent.trials} of {budget.trials} trials used"
    if budget.cost is not None and spent.cost >= budget.cost:
        return f"a cost of {spent.cost:g} of {budget.cost:g} used"
    return models_over_budget(budget, spent)


def models_over_budget(budget: BudgetSpec, spent: BudgetUsed) -> str:
    """Return how much models have cost if they have used up their budget, else ""."""
    if budget.cost_usd is None or spent.cost_usd < budget.cost_usd:
        return ""
    return f"{dollars(spent.cost_usd)} of ${budget.cost_usd:g} used by models"
