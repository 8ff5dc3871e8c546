"""The counters over rounds and the reasons to stop."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.journal.records import Round, RoundOutcome
from engine.judge.stop_rules import BudgetUsed, RoundCounts, stop, tally
from engine.manifest.limits import LIMITS
from engine.manifest.schema import BudgetSpec, Manifest, StopSpec


def rounds(*outcomes: RoundOutcome | None) -> list[Round]:
    return [Round(campaign="c", n=n, scope="all", incumbent="b", started_at=1.0, outcome=outcome)
            for n, outcome in enumerate(outcomes, 1)]


@pytest.mark.parametrize(("outcomes", "done", "regressions", "gainless"), [
    (("baseline",), 0, 0, 0),
    (("baseline", None), 0, 0, 0),
    (("baseline", "regression", None), 1, 1, 1),
    (("baseline", "regression", "regression"), 2, 2, 2),
    (("baseline", "regression", "tie", "regression"), 3, 1, 3),
    (("baseline", "regression", "failed"), 2, 0, 2),
    (("baseline", "regression", "failed", "regression"), 3, 1, 3),
    (("baseline", "regression", "keep"), 2, 0, 0),
    (("baseline", "keep", "tie"), 2, 0, 1),
    (("baseline", "keep", "regression", "regression", "regression"), 4, 3, 3),
])
def test_any_outcome_but_a_regression_resets_consecutive_regressions(
        outcomes: tuple[RoundOutcome | None, ...], done: int, regressions: int,
        gainless: int) -> None:
    """A keep, a tie, a failed benchmark and a failed repair set consecutive regressions to 0."""
    expected = RoundCounts(rounds=done, consecutive_regressions=regressions, without_gain=gainless)
    assert tally(rounds(*outcomes)) == expected
    assert tally(rounds(*outcomes)[::-1]) == expected


def test_approved_keep_resets_like_any_other() -> None:
    lost = rounds("baseline", "regression", "regression", "regression")
    assert tally(lost, kept={3}) == RoundCounts(rounds=3, consecutive_regressions=1, without_gain=1)
    assert tally(lost, kept={4}) == RoundCounts(rounds=3)


def test_reason_counts_the_rounds_without_a_providers_answer_apart() -> None:
    """The state said `5 of 5`, and the reason only that 3 rounds were done."""
    manifest = Manifest(target_op="x", max_iterations=3)
    assert stop(manifest, RoundCounts(rounds=3)).reason == "max_iterations: 3 rounds done"
    assert stop(manifest, RoundCounts(rounds=3, lost=2)).reason == \
        "max_iterations: 3 rounds done, besides 2 without a provider's answer"


def test_round_whose_gain_waits_ends_both_streaks() -> None:
    lost = rounds("baseline", "regression", "waiting", "regression")
    assert tally(lost, gained={3}) == RoundCounts(rounds=3, consecutive_regressions=1,
                                                  without_gain=1)


def test_rounds_during_which_a_gain_waits_extend_no_streak() -> None:
    lost = rounds("baseline", "regression", "regression", "tie", "regression")
    assert tally(lost, suspended={3, 4}) == RoundCounts(rounds=4, consecutive_regressions=2,
                                                        without_gain=2)


outcome_lists = st.lists(st.sampled_from(["keep", "tie", "regression", "failed", None]),
                         max_size=30)


@given(outcome_lists)
def test_counters_are_lengths_of_the_last_streaks(outcomes: list[RoundOutcome | None]) -> None:
    counts = tally(rounds("baseline", *outcomes))
    ended = [outcome for outcome in outcomes if outcome is not None]
    assert counts.rounds == len(ended)
    streak = counts.consecutive_regressions
    assert ended[len(ended) - streak:] == ["regression"] * streak
    assert streak == len(ended) or ended[-streak - 1] != "regression"
    assert "keep" not in ended[len(ended) - counts.without_gain:]
    assert counts.without_gain == len(ended) or ended[-counts.without_gain - 1] == "keep"
    assert streak <= counts.without_gain <= counts.rounds


@given(outcome_lists, st.integers(0, 30))
def test_round_without_an_outcome_changes_no_counter(
        outcomes: list[RoundOutcome | None], at: int) -> None:
    """A round whose engine was killed has no outcome and does not count."""
    whole = rounds("baseline", *outcomes)
    ended = [round for round in whole if round.outcome is not None]
    assert tally(whole) == tally(ended)
    assert tally(ended[:at] + ended[at:]) == tally(ended)


WALL = BudgetSpec(wall_s=100)


@pytest.mark.parametrize(("fields", "counts", "now", "limit", "words"), [
    ({}, RoundCounts(), {}, "", ""),
    ({"max_iterations": 3}, RoundCounts(rounds=2), {}, "", ""),
    ({"max_iterations": 3}, RoundCounts(rounds=3), {}, "max_iterations",
     "max_iterations: 3 rounds done"),
    ({}, RoundCounts(rounds=119), {}, "", ""),
    ({}, RoundCounts(consecutive_regressions=4), {}, "", ""),
    ({}, RoundCounts(consecutive_regressions=5), {}, "stop.consecutive_regressions",
     "5 consecutive measured regressions"),
    ({"stop": StopSpec(consecutive_regressions=2)}, RoundCounts(consecutive_regressions=2), {},
     "stop.consecutive_regressions", "2 conse"),
    ({}, RoundCounts(without_gain=100), {}, "", ""),
    ({"stop": StopSpec(no_gain_rounds=2)}, RoundCounts(without_gain=1), {}, "", ""),
    ({"stop": StopSpec(no_gain_rounds=2)}, RoundCounts(without_gain=2), {},
     "stop.no_gain_rounds", "no gain in 2 rounds"),
    ({"stop": StopSpec(efficiency_pct=80)}, RoundCounts(), {"pct_of_roofline": 81.0},
     "stop.efficiency_pct", "81% of the roof"),
    ({"stop": StopSpec(efficiency_pct=80)}, RoundCounts(), {"pct_of_roofline": 79.0}, "", ""),
    ({"stop": StopSpec(efficiency_pct=80)}, RoundCounts(), {"pct_of_roofline": None}, "", ""),
    ({"performance_target": "1.5x"}, RoundCounts(), {"reached": "at least 1.52x"},
     "performance_target", "performance_target 1.5x: at least 1.52x"),
    ({"performance_target": "1.5x", "max_iterations": 1}, RoundCounts(rounds=1),
     {"reached": "at least 1.52x"}, "performance_target", "performance_target"),
    ({"budget": WALL}, RoundCounts(), {"spent": BudgetUsed(wall_s=99)}, "", ""),
    ({"budget": WALL}, RoundCounts(), {"spent": BudgetUsed(wall_s=101)},
     "budget.wall_s", "budget: 101 s of 100 s used"),
    ({"budget": WALL}, RoundCounts(), {"spent": BudgetUsed(wall_s=70), "margin_s": 29}, "", ""),
    ({"budget": WALL}, RoundCounts(), {"spent": BudgetUsed(wall_s=70), "margin_s": 30},
     "budget.wall_s", "70 s of 100 s used; the remaining 30 s are too short for a round's"),
    ({"budget": BudgetSpec(trials=8)}, RoundCounts(), {"spent": BudgetUsed(trials=7)}, "", ""),
    ({"budget": BudgetSpec(trials=8)}, RoundCounts(), {"spent": BudgetUsed(trials=9)},
     "budget.trials", "9 of 8 trials used"),
    ({"budget": BudgetSpec(cost=2.5)}, RoundCounts(), {"spent": BudgetUsed(cost=2.25)}, "", ""),
    ({"budget": BudgetSpec(cost_usd=2.5)}, RoundCounts(), {"spent": BudgetUsed(cost_usd=2.4)}, "",
     ""),
    ({"budget": BudgetSpec(cost_usd=2.5)}, RoundCounts(), {"spent": BudgetUsed(cost_usd=2.507)},
     "budget.cost_usd", "budget: $2.51 of $2.5 used by models"),
    ({"budget": BudgetSpec(cost=2.5)}, RoundCounts(), {"spent": BudgetUsed(cost=2.5)},
     "budget.cost", "a cost of 2.5 of 2.5"),
    ({"budget": BudgetSpec(pairs=4)}, RoundCounts(),
     {"spent": BudgetUsed(wall_s=1e6, trials=999)}, "", ""),
])
def test_each_limit_gives_its_reason(fields: dict[str, Any], counts: RoundCounts,
                                     now: dict[str, Any], limit: str, words: str) -> None:
    found = stop(Manifest(target_op="x", **fields), counts, **now)
    assert words in found.reason and bool(found.reason) == bool(words)
    assert found.limit == limit and limit in ("", *LIMITS)  # kopt set changes it


@given(wall_s=st.floats(1, 1e4), used=st.floats(0, 2e4), margin=st.floats(0, 1e4))
def test_margin_never_delays_a_stop(wall_s: float, used: float, margin: float) -> None:
    manifest = Manifest(target_op="x", budget=BudgetSpec(wall_s=wall_s))
    strict = stop(manifest, RoundCounts(), spent=BudgetUsed(wall_s=used)).reason
    soft = stop(manifest, RoundCounts(), spent=BudgetUsed(wall_s=used), margin_s=margin).reason
    assert soft or not strict
