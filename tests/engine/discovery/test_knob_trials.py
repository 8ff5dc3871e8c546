"""Guards which proposed knobs are accepted: those that keep the kernel right at two values."""

from __future__ import annotations

from collections.abc import Mapping

from engine.discovery.new import knob_trials
from harness.search.space.knob_proposals import KnobProposal

TILE = KnobProposal(name="TILE", line=1, value=16, choices=(4, 8, 16, 32), why="")
WARPS = KnobProposal(name="WARPS", line=2, value=4, choices=(1, 2, 4, 8), why="")


def test_two_other_values_of_all_knobs_are_tried_at_once() -> None:
    tried: list[Mapping[str, int]] = []
    assert knob_trials.accepted([TILE, WARPS], lambda values: not tried.append(values)) == (
        TILE, WARPS)
    assert tried == [{"TILE": 8, "WARPS": 2}, {"TILE": 4, "WARPS": 1}]


def test_knob_with_a_wrong_value_is_dropped_alone() -> None:
    assert knob_trials.accepted([TILE, WARPS], lambda values: values.get("TILE") != 4) == (WARPS,)
