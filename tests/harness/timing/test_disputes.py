"""The reference decides on every difference between the sides that is larger than earlier ones."""

from __future__ import annotations

import math

import pytest

from harness.timing.timed_slots import Disputes, SlotComparison


def block(**excess: float) -> SlotComparison:
    """Return a comparison in which these slots differ, such as s3=1.5."""
    worst = sorted(excess.items(), key=lambda item: -item[1])
    return SlotComparison(differs=tuple(int(slot[1:]) for slot, _ in worst),
                          excess=tuple(value for _, value in worst), damage={})


def test_small_differences_do_not_use_up_the_limit_on_disputes() -> None:
    """They did: after two of a pair, a candidate could leave out calls in its later blocks."""
    disputes = Disputes()
    assert disputes.chosen(block(s1=1.2, s2=1.3, s3=1.1)) == [2, 1]
    assert disputes.chosen(block(s4=1.25)) == []
    assert disputes.chosen(block(s5=1.2, s6=1e6)) == [6]
    assert disputes.chosen(block()) == []


@pytest.mark.parametrize("later", [1.5, math.inf])
def test_non_finite_differences_do_not_hide_later_ones(later: float) -> None:
    disputes = Disputes()
    assert disputes.chosen(block(s1=math.inf)) == [1]
    assert disputes.chosen(block(s2=later)) == [2]
