"""Hypotheses without a model: distinct sentences from bottlenecks, tips and failures."""

from __future__ import annotations

import msgspec

from engine.knowledge import strategy_table
from engine.knowledge.strategy_record import StrategyRecord
from engine.knowledge.strategy_table import StrategyPlace
from engine.planning.idea_source import distinct, ideas
from engine.planning.stagnation import TriedDirections
from tests.support.searches.plan_case import tunable

BOTTLENECKS = (tunable(1, "A"), tunable(2, "B"))


def test_bottlenecks_advice_comes_first() -> None:
    assert ideas(BOTTLENECKS, TriedDirections())[0].text == "relieve memory: move less"


def test_idea_that_was_followed_on_this_best_does_not_return() -> None:
    tried = TriedDirections(ideas=frozenset({("advice", "memory", "tall")}))
    assert "advice" not in {idea.key for idea in ideas(BOTTLENECKS, tried)}


def test_idea_that_lost_on_an_earlier_best_comes_last() -> None:
    found = ideas(BOTTLENECKS, TriedDirections(lost_ideas=frozenset({"advice"})))
    assert found[-1].key == "advice"


def test_transformation_tries_and_loses_every_strategy_that_lists_it() -> None:
    rows = strategy_table.listing(["c-relaxed-math"])
    place = StrategyPlace(op="reduction", language="c")
    before = [idea.strategy for idea in ideas(BOTTLENECKS, TriedDirections(), place=place)]
    assert len(rows & set(before)) > 1 and before[-1] not in rows
    tried = TriedDirections(transforms=frozenset({"c-relaxed-math"}))
    assert not rows & {idea.strategy for idea in ideas(BOTTLENECKS, tried, place=place)}
    lost = TriedDirections(lost_transforms=frozenset({"c-relaxed-math"}))
    after = [idea.strategy for idea in ideas(BOTTLENECKS, lost, place=place)]
    assert set(after) == set(before) and set(after[-len(rows & set(before)):]) <= rows


def test_ideas_for_gpus_are_not_given_to_the_cpu() -> None:
    keys = {gpu: {idea.key for idea in ideas(
        BOTTLENECKS, TriedDirections(), place=StrategyPlace(on_gpu=gpu))}
            for gpu in (False, True)}
    assert "reductions" in keys[True] and keys[False] < keys[True]


def test_strategy_that_helped_most_often_comes_first_after_the_advice() -> None:
    records = {"fused-passes": StrategyRecord(tried=4, kept=4, gain=1.3),
               "bytes-once": StrategyRecord(tried=3)}
    keys = [idea.key for idea in ideas(BOTTLENECKS[:1], TriedDirections(), records=records)]
    assert keys[:2] == ["advice", "fused-passes"]
    assert keys.index("bytes-once") > keys.index("vector-access")


def test_tips_and_failures_become_hypotheses_of_one_line() -> None:
    found = ideas(BOTTLENECKS, TriedDirections(), ("helped: TILE 64", "rejected 3 times: x"),
                  ("vector loads\n; it was rejected: wrong",))
    assert [idea.text for idea in found[2:4]] == [
        "make it correct: vector loads ; it was rejected: wrong",
        "apply an earlier campaign's lesson: helped: TILE 64"]
    assert not any("rejected 3 times" in idea.text for idea in found)


def test_two_sentences_with_the_same_words_are_one_idea() -> None:
    first, *_ = ideas(BOTTLENECKS, TriedDirections())
    again = msgspec.structs.replace(first, text="Relieve the memory: move less!")
    assert distinct([first, again]) == [first]
    assert distinct([first], [again.text]) == []


def test_kernel_without_bottlenecks_gets_general_ideas() -> None:
    found = ideas((), TriedDirections())
    assert len(found) >= 5 and all(idea.tunable is None for idea in found)


def test_strategy_is_proposed_for_one_bottleneck_of_a_round() -> None:
    places = ((tunable(1), "memory", "square"), (tunable(2), "far from the roofline", "tall"))
    aimed = [msgspec.structs.replace(limit, bottleneck=msgspec.structs.replace(
        limit.bottleneck, limiter=limiter, config_class=config_class))
             for limit, limiter, config_class in places]
    found = ideas(aimed, TriedDirections(), place=StrategyPlace(
        op="reduction", language="cuda", on_gpu=True))
    keys = [idea.key for idea in found if idea.key != "advice"]
    assert len(set(keys)) == len(keys) > 10
