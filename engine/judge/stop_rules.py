"""When a campaign stops: counters over its rounds, and the reasons to stop."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from engine.journal.records import Round
from engine.manifest.schema import BudgetSpec, Manifest
from harness.formats.quantities import counted, dollars


class RoundCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counters over ended rounds except the baseline; the streaks are of the latest in a row."""

    rounds: int = 0
    consecutive_regressions: int = 0
    without_gain: int = 0
    lost: int = 0
    """Rounds that do not count, since no model's provider answered."""


class BudgetUsed(msgspec.Struct, frozen=True, kw_only=True):
    """What all engines of a campaign have used up together.

    `cost` is in the manifest's unit, `cost_usd` what models cost where their price is known.
    """

    wall_s: float = 0.0
    trials: int = 0
    cost: float = 0.0
    cost_usd: float = 0.0


NOTHING = BudgetUsed()


class Stop(msgspec.Struct, frozen=True):
    """Why a campaign stops, "" if it does not, and which limit of `kopt set` is the reason."""

    reason: str = ""
    limit: str = ""


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


def stop(manifest: Manifest, counts: RoundCounts, *, spent: BudgetUsed = NOTHING,
         margin_s: float = 0.0, pct_of_roofline: float | None = None, reached: str = "") -> Stop:
    """Return why the campaign stops now; `margin_s` is reserved for a round's verdicts."""
    rules = manifest.stop
    if reached:
        return Stop(f"performance_target {manifest.performance_target}: {reached}",
                    "performance_target")
    if rules.efficiency_pct is not None and (pct_of_roofline or 0.0) >= rules.efficiency_pct:
        return Stop(f"efficiency: {pct_of_roofline:.0f}% of the roofline reached",
                    "stop.efficiency_pct")
    if manifest.max_iterations is not None and counts.rounds >= manifest.max_iterations:
        more = f", besides {counts.lost} without a provider's answer" if counts.lost else ""
        return Stop(f"max_iterations: {counted(counts.rounds, 'round')} done{more}",
                    "max_iterations")
    if counts.consecutive_regressions >= rules.consecutive_regressions:
        return Stop(f"{counts.consecutive_regressions} consecutive measured regressions",
                    "stop.consecutive_regressions")
    if rules.no_gain_rounds is not None and counts.without_gain >= rules.no_gain_rounds:
        return Stop(f"no gain in {counted(counts.without_gain, 'round')}", "stop.no_gain_rounds")
    return _over_budget(manifest, spent, margin_s)


def _over_budget(manifest: Manifest, spent: BudgetUsed, margin_s: float) -> Stop:
    budget = manifest.budget
    if budget.wall_s is not None and spent.wall_s + margin_s >= budget.wall_s:
        left = budget.wall_s - spent.wall_s
        rest = "" if left <= 0 else \
            f"; the remaining {left:.0f} s are too short for a round's verdicts"
        return Stop(f"budget: {spent.wall_s:.0f} s of {budget.wall_s:g} s used{rest}",
                    "budget.wall_s")
    if budget.trials is not None and spent.trials >= budget.trials:
        return Stop(f"budget: {spent.trials} of {budget.trials} trials used", "budget.trials")
    if budget.cost is not None and spent.cost >= budget.cost:
        return Stop(f"budget: a cost of {spent.cost:g} of {budget.cost:g} used", "budget.cost")
    if over := models_over_budget(budget, spent):
        return Stop(f"budget: {over}", "budget.cost_usd")
    return Stop()


def models_over_budget(budget: BudgetSpec, spent: BudgetUsed) -> str:
    """Return how much models have cost if they have used up their budget, else ""."""
    if budget.cost_usd is None or spent.cost_usd < budget.cost_usd:
        return ""
    return f"{dollars(spent.cost_usd)} of ${budget.cost_usd:g} used by models"
