"""What counts towards an end, and which end it is."""

from __future__ import annotations

from typing import Any

import pytest

from engine.journal.records import Round, RoundOutcome
from engine.manifest import Budget, Manifest, Stop
from engine.stopping import Tally, reason_to_stop, tally


def rounds(*outcomes: RoundOutcome | None) -> list[Round]:
    return [Round(campaign="c", n=n, scope="all", incumbent="b", started_at=1.0, outcome=outcome)
            for n, outcome in enumerate(outcomes, 1)]


@pytest.mark.parametrize(("outcomes", "done", "regressions", "gainless"), [
    (("baseline",), 0, 0, 0),
    (("baseline", None), 0, 0, 0),
    (("baseline", "regression", "regression"), 2, 2, 2),
    (("baseline", "regression", "tie", "regression"), 3, 1, 3),
    (("baseline", "regression", "failed"), 2, 0, 2),
    (("baseline", "regression", "keep"), 2, 0, 0),
    (("baseline", "keep", "regression", "regression", "regression"), 4, 3, 3),
])
def test_counting(outcomes: tuple[RoundOutcome | None, ...], done: int, regressions: int,
                  gainless: int) -> None:
    expected = Tally(rounds=done, consecutive_regressions=regressions, without_gain=gainless)
    assert tally(rounds(*outcomes)) == expected
    assert tally(rounds(*outcomes)[::-1]) == expected


NOTHING: dict[str, Any] = {"elapsed_s": 1.0, "pct_of_roofline": None, "trials": 0}


@pytest.mark.parametrize(("fields", "counts", "now", "words"), [
    ({}, Tally(), {}, ""),
    ({"max_iterations": 3}, Tally(rounds=2), {}, ""),
    ({"max_iterations": 3}, Tally(rounds=3), {}, "max_iterations: 3 rounds done"),
    ({}, Tally(consecutive_regressions=4), {}, ""),
    ({}, Tally(consecutive_regressions=5), {}, "5 consecutive measured regressions"),
    ({"stop": Stop(consecutive_regressions=2)}, Tally(consecutive_regressions=2), {}, "2 conse"),
    ({}, Tally(without_gain=100), {}, ""),
    ({"stop": Stop(no_gain_rounds=2)}, Tally(without_gain=2), {}, "no gain in 2 rounds"),
    ({"stop": Stop(efficiency_pct=80)}, Tally(), {"pct_of_roofline": 81.0}, "81% of the roof"),
    ({"stop": Stop(efficiency_pct=80)}, Tally(), {"pct_of_roofline": 79.0}, ""),
    ({"budget": Budget(wall_s=10)}, Tally(), {"elapsed_s": 11.0}, "11 s of 10 s used"),
    ({"budget": Budget(trials=8)}, Tally(), {"trials": 9}, "9 trials used"),
    ({}, Tally(), {"exhausted": "all done"}, "nothing left to try: all done"),
])
def test_reasons(fields: dict[str, Any], counts: Tally, now: dict[str, Any], words: str) -> None:
    said = reason_to_stop(Manifest(target_op="x", **fields), counts, **{**NOTHING, **now})
    assert words in said and bool(said) == bool(words)
