"""When a campaign ends: counters over rounds, and the reasons to stop."""

from __future__ import annotations

import msgspec

from engine.journal.records import Round
from engine.manifest import Manifest


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What the rounds so far come to; round 1 is the baseline and no attempt."""

    rounds: int = 0
    consecutive_regressions: int = 0
    without_gain: int = 0


def tally(rounds: list[Round]) -> Tally:
    """Count: only a measured regression adds to the streak, everything else ends it."""
    regressions = without_gain = attempts = 0
    for round in sorted(rounds, key=lambda r: r.n):
        if round.outcome in (None, "baseline"):
            continue
        attempts += 1
        regressions = regressions + 1 if round.outcome == "regression" else 0
        without_gain = 0 if round.outcome == "keep" else without_gain + 1
    return Tally(rounds=attempts, consecutive_regressions=regressions, without_gain=without_gain)


def reason_to_stop(manifest: Manifest, counts: Tally, *, elapsed_s: float,
                   pct_of_roofline: float | None, trials: int, exhausted: str = "") -> str:
    """Return why the campaign ends now, or ""; `exhausted` says why another round is in vain."""
    stop, budget = manifest.stop, manifest.budget
    if manifest.max_iterations is not None and counts.rounds >= manifest.max_iterations:
        return f"max_iterations: {counts.rounds} rounds done"
    if counts.consecutive_regressions >= stop.consecutive_regressions:
        return f"{counts.consecutive_regressions} consecutive measured regressions"
    if stop.no_gain_rounds is not None and counts.without_gain >= stop.no_gain_rounds:
        return f"no gain in {counts.without_gain} rounds"
    if stop.efficiency_pct is not None and (pct_of_roofline or 0.0) >= stop.efficiency_pct:
        return f"efficiency: {pct_of_roofline:.0f}% of the roofline reached"
    if budget.wall_s is not None and elapsed_s >= budget.wall_s:
        return f"budget: {elapsed_s:.0f} s of {budget.wall_s:g} s used"
    if budget.trials is not None and trials >= budget.trials:
        return f"budget: {trials} trials used"
    return f"nothing left to try: {exhausted}" if exhausted else ""
