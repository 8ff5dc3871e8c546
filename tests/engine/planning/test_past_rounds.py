"""What the slots of the last round count for in the split between planned ones and others."""

from __future__ import annotations

import msgspec

from engine.planning import past_rounds
from tests.support.dashboards import samples
from tests.support.engines.history_case import HistoryBuilder

SPEEDUPS = {"planned-1": (1.22, 1.78), "planned-2": (None,), "rewrite-x": (500.0, 1.1),
            "fixed": (2.0,), "inbox-1": (9.0,)}
"""By slot, what its candidates measured: first ones, then stacked, repaired or split ones."""


def test_slot_counts_once_with_its_best_plausible_speedup() -> None:
    built = HistoryBuilder().round("keep", *(
        ("tie", speedup) for of_slot in SPEEDUPS.values() for speedup in of_slot))
    names = [slot for slot, of_slot in SPEEDUPS.items() for _ in of_slot]
    built.candidates = {name: msgspec.structs.replace(candidate, slot=slot) for slot, (
        name, candidate) in zip(names, built.candidates.items(), strict=True)}
    slots = [samples.slot(slot, 2, "c", backend="inbox" if slot == "inbox-1" else "agent",
                          kind="planned" if slot.startswith(("planned", "inbox")) else "fixed")
             for slot in SPEEDUPS]
    planned, others = past_rounds.scores(built.history, slots, 2)
    assert (planned.speedups, planned.slots, planned.score) == ((1.78,), 2, 0.89)
    assert (set(others.speedups), others.slots, others.score) == ({1.1, 2.0}, 2, 2.0)
