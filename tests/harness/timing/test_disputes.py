"""The reference judges at most two differences of a block, each above all that it judged before."""

from __future__ import annotations

import math

import pytest

from harness.timing.timed_slots import Disputes, SlotComparison


def comparison(**excess: float) -> SlotComparison:
    """Return a comparison in which these slots differ, such as s3=1.5."""
    worst = sorted(excess.items(), key=lambda item: -item[1])
    return SlotComparison(differs=tuple(int(slot[1:]) for slot, _ in worst),
                          excess=tuple(value for _, value in worst), damage={})


def test_small_differences_do_not_use_up_the_limit_on_disputes() -> None:
    """Formerly two disputes used up a pair's limit, so that calls skipped later were not seen."""
    disputes = Disputes()
    assert disputes.chosen(comparison(s1=1.2, s2=1.3, s3=1.1)) == [2, 1]
    assert disputes.chosen(comparison(s4=1.25)) == []
    assert disputes.chosen(comparison(s5=1.2, s6=1e6)) == [6]
    assert disputes.chosen(comparison()) == []


@pytest.mark.parametrize("later", [1.5, math.inf])
def test_non_finite_differences_do_not_hide_later_ones(later: float) -> None:
    disputes = Disputes()
    assert disputes.chosen(comparison(s1=math.inf)) == [1]
    assert disputes.chosen(comparison(s2=later)) == [2]
