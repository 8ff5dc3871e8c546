"""A proposed knob is accepted if the kernel is correct at two other values of it."""

from __future__ import annotations

from collections.abc import Mapping

from engine.discovery.new import knob_trials
from harness.search.space.knob_edits import KnobProposal

TILE = KnobProposal(name="TILE", line=1, value=16, choices=(4, 8, 16, 32), why="")
WARPS = KnobProposal(name="WARPS", line=2, value=4, choices=(1, 2, 4, 8), why="")


def test_two_other_values_of_all_knobs_are_tried_at_once() -> None:
    tried: list[Mapping[str, int]] = []
    assert knob_trials.accepted([TILE, WARPS], lambda values: not tried.append(values)) == (
        TILE, WARPS)
    assert tried == [{"TILE": 8, "WARPS": 2}, {"TILE": 32, "WARPS": 8}]


def test_only_the_knob_that_makes_results_wrong_is_dropped() -> None:
    assert knob_trials.accepted([TILE, WARPS], lambda values: values.get("TILE") != 32) == (WARPS,)


def test_knob_whose_default_is_0_is_tried_with_its_smallest_and_largest_other_value() -> None:
    tried: list[Mapping[str, int]] = []
    knob_trials.accepted([KnobProposal(name="SIZE", line=1, value=0, choices=(0, 64, 128, 256),
                                       why="")], lambda values: not tried.append(values))
    assert tried == [{"SIZE": 64}, {"SIZE": 256}]
