"""Changes to the current best that sped up one class and slowed another are listed for agents."""

from __future__ import annotations

from typing import Any

import msgspec

from engine.history import attempt_digest
from tests.support.engines.history_case import HistoryBuilder, mixed


def brief_of(*rounds: tuple[Any, ...], tree: str = "t0") -> str:
    past = HistoryBuilder()
    for decisions in rounds:
        past.round("regression", *decisions)
    return attempt_digest.needing_split(past.history, tree)


def test_brief_names_candidates_and_their_classes() -> None:
    text = brief_of((("reject", 0.77, mixed(0.77)),), (("split", 1.1, mixed(1.1)), ("tie", 1.0)))
    assert text.startswith("## Changes that need a split\n") and "the default" in text
    assert [line for line in text.splitlines() if line.startswith("- ")] == [
        "- round 3: idea 2: tall 20.0% faster; odd 66.7% slower",
        "- round 2: idea 1: tall 20.0% faster; odd 66.7% slower"]


def test_brief_lists_each_candidate_once_and_only_the_newest_candidates() -> None:
    again = (("split", 0.8, mixed(0.8)), ("split", 0.8, mixed(0.8)))
    past = HistoryBuilder().round("regression", *again)
    past.candidates = {name: msgspec.structs.replace(entry, id="c1")
                       for name, entry in past.candidates.items()}
    past.decisions = [
        msgspec.structs.replace(decision, candidate="c1") for decision in past.decisions
    ]
    assert attempt_digest.needing_split(past.history, "t0").count("\n- ") == 1
    text = brief_of(*[(("reject", 0.8, mixed(0.8)),)] * 9)
    assert text.count("\n- ") == attempt_digest.DIVERGENT and "round 10: " in text


def test_brief_lists_losses_beyond_the_margin() -> None:
    assert "odd 3.1% slower" in brief_of((("tie", 0.99, mixed(0.99, worst=0.97)),))


def test_brief_omits_changes_to_other_bests_waiting_gains_and_classes_that_agree() -> None:
    assert brief_of((("reject", 0.77, mixed(0.77)),), tree="t7") == ""
    assert brief_of((("ask", 1.1, mixed(1.1, worst=0.97)),)) == ""
    assert brief_of((("regression", 0.8), ("reject", None))) == ""
