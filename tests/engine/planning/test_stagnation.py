"""Stagnation reviews: when they come, how deep they go, and which directions are new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.manifest.pool_schema import PoolSpec
from engine.planning import stagnation
from engine.planning.bottlenecks import TunableBottleneck
from engine.planning.plan_inputs import PlanInputs, planned_share
from engine.planning.round_plan import plan
from engine.planning.stagnation import (
    DIRECTIONS,
    NOTHING,
    PlannedIdea,
    SearchDirection,
    TriedDirections,
)
from engine.task import Task
from harness.search.space.knobs import Knob
from tests.support.searches import plan_case
from tests.support.searches.plan_case import AGENT, tunable

NAMES = ("A", "B", "C", "D")
KNOBS = tuple(Knob(name=name, line=n, value=1, choices=(1, 2)) for n, name in enumerate(NAMES, 1))


BOTTLENECKS = (tunable(1, *NAMES), tunable(2, "C", limiter="not vectorised"))


def plan_inputs(without_gain: int = 0, tried: TriedDirections = NOTHING,
                **fields: Any) -> PlanInputs:
    defaults: dict[str, Any] = {"round": 7, "knobs": KNOBS, "bottlenecks": BOTTLENECKS,
                                "tried": tried, "review": stagnation.review(without_gain, tried)}
    return plan_case.plan_inputs(**(defaults | fields))


@pytest.mark.parametrize(("without_gain", "depth", "width"), [
    (0, None, 1), (1, None, 1),
    (2, "review", 2),
    (3, "instructions", 2),
    (4, "state of the art", 4), (5, "state of the art", 4), (50, "state of the art", 4),
])
def test_two_rounds_without_gain_cause_a_review_and_more_go_deeper(
        without_gain: int, depth: str | None, width: int) -> None:
    review = stagnation.review(without_gain)
    assert (None if review is None else review.depth) == depth
    assert plan_inputs(without_gain).trials == width * PoolSpec().trials
    if review is not None:
        assert review.rounds_without_gain == without_gain and review.width == width
        assert review.demands and len(review.ideas) >= DIRECTIONS


PLACES = (tunable(1), tunable(2, limiter="latency"))


def tried_at(ideas: Sequence[PlannedIdea], *places: TunableBottleneck) -> TriedDirections:
    return TriedDirections(ideas=frozenset(
        (idea.key, place.bottleneck.limiter, place.bottleneck.config_class)
        for idea in ideas for place in places))


def ideas_of_review(tried: TriedDirections = NOTHING,
                    places: Sequence[TunableBottleneck] = PLACES) -> tuple[PlannedIdea, ...]:
    review = stagnation.review(2, tried, places)
    assert review is not None
    return review.ideas


def test_idea_that_a_slot_followed_is_not_new() -> None:
    first = ideas_of_review(places=())
    assert ideas_of_review(tried_at(first[:1], PLACES[0]), ()) == first[1:]
    deeper = stagnation.review(3, tried_at(first, PLACES[0]))
    assert deeper is not None and not set(deeper.ideas) & set(first)


@pytest.mark.parametrize("left", range(6))
def test_known_ideas_are_aimed_at_other_bottlenecks_when_new_ones_run_out(left: int) -> None:
    first = ideas_of_review()
    tried = tried_at(first[left:], PLACES[0])
    ideas = ideas_of_review(tried)
    assert len(ideas) == max(left, DIRECTIONS) == len(set(ideas))
    assert ideas[:left] == first[:left]
    assert all(idea.tunable == PLACES[1] for idea in ideas[left:])


def test_repeated_idea_is_marked() -> None:
    first = ideas_of_review()
    repeats = tuple(replace(idea, is_repeat=True, text=f"again: {idea.text}")
                    for idea in first[:DIRECTIONS])
    everywhere = tried_at(first, *PLACES)
    assert ideas_of_review(everywhere) == repeats
    assert ideas_of_review(tried_at(first, PLACES[0]), ()) == repeats
    assert stagnation.named(("x",), repeats) == ("x", *(idea.text for idea in repeats[:2]))
    text = stagnation.brief(stagnation.review(2, everywhere, PLACES))
    assert "New directions:" not in text and "followed before" in text
    one_left = TriedDirections(ideas=everywhere.ideas - {(first[0].key, "memory", "tall")})
    assert not ideas_of_review(one_left)[0].is_repeat
    text = stagnation.brief(stagnation.review(2, one_left, PLACES))
    assert "New directions:" in text and "followed before" in text


def test_agents_work_on_the_bottleneck_that_their_idea_is_aimed_at() -> None:
    pool = PoolSpec(backends=("cli",), cli=(AGENT,))
    ideas = ideas_of_review()
    tried = tried_at(ideas, PLACES[0])
    review = stagnation.review(2, tried, BOTTLENECKS)
    planned = [task for task in plan(plan_inputs(2, pool=pool, tried=tried, review=review))
               if task.kind == "planned"]
    assert len(planned) == 3
    for idea, task in zip(ideas, planned, strict=False):
        assert task.hypothesis == f"agent: {idea.text}, against not vectorised in tall"
        assert task.bottleneck.startswith("b2.2 ")
        assert (task.idea, task.limiter, task.config_class) == (
            idea.key, "not vectorised", "tall")


@pytest.mark.parametrize(("ideas", "count"), [((), 3), (("x",), 3), (("x", "y", "z", "w"), 4)])
def test_review_names_at_least_three_directions(ideas: tuple[str, ...], count: int) -> None:
    named = stagnation.named(ideas, ideas_of_review()[:4])
    assert (
        len(named) == count
        and named[: len(ideas)] == ideas
        and len(set(named)) == count
    )


def knobs_of(directions_found: list[SearchDirection]) -> list[str]:
    return ["".join(direction.knobs) for direction in directions_found]


def test_directions_alternate_between_bottlenecks_without_repeats() -> None:
    assert knobs_of(stagnation.new_directions(BOTTLENECKS, NOTHING, "review")) == \
        ["A", "C", "B", "D", "AB", "BC", "CD", "ABCD"]


def test_compilers_bottlenecks_come_first_at_the_level_of_instructions() -> None:
    assert knobs_of(
        stagnation.new_directions(BOTTLENECKS, NOTHING, "instructions"))[:2] == ["C", "A"]


def test_all_knobs_move_first_at_the_state_of_the_art() -> None:
    ideas = knobs_of(stagnation.new_directions(BOTTLENECKS, NOTHING, "state of the art"))
    assert ideas[:3] == ["ABCD", "C", "AB"]


@given(st.permutations(NAMES).flatmap(lambda names: st.integers(1, 4).map(lambda n: names[:n])),
       st.sampled_from(["review", "instructions", "state of the art"]))
def test_tried_knobs_are_not_new_in_any_order_against_any_bottleneck(
        names: list[str], depth: Any) -> None:
    tried = TriedDirections(knobs=frozenset({frozenset(names)}))
    left = stagnation.new_directions(BOTTLENECKS, tried, depth)
    assert frozenset(names) not in [frozenset(direction.knobs) for direction in left]


@given(st.lists(st.sampled_from(stagnation.new_directions(BOTTLENECKS, NOTHING, "review"))))
def test_direction_is_new_until_it_was_tried(tried: list[SearchDirection]) -> None:
    knobs = frozenset(frozenset(direction.knobs) for direction in tried)
    left = stagnation.new_directions(BOTTLENECKS, TriedDirections(knobs=knobs), "review")
    assert len(left) == 8 - len(knobs)


@pytest.mark.parametrize(("slots", "share"), [(1, 0), (2, 1), (3, 2), (4, 3), (8, 4)])
def test_review_has_room_for_three_directions(slots: int, share: int) -> None:
    assert planned_share(plan_inputs(2, slots=slots)) == share


def test_reviewed_round_follows_only_new_directions() -> None:
    tried = TriedDirections.of(plan(plan_inputs()))
    tasks = plan(plan_inputs(2, tried))
    planned = [task for task in tasks if task.kind == "planned"]
    assert len(planned) == 3 and tasks[-1].slot == "fixed"
    assert not {frozenset(task.knobs) for task in planned} & tried.knobs
    assert len({frozenset(task.knobs) for task in planned}) == 3
    assert all(task.bottleneck.startswith("b2.") for task in planned)


def test_rounds_follow_other_directions_until_there_are_none() -> None:
    searched: list[Task] = []
    for number in range(3):
        tried = TriedDirections.of(searched)
        searched += [t for t in plan(plan_inputs(2 + number, tried, round=7 + number))
                     if t.kind == "planned"]
    tried = TriedDirections.of(searched)
    searched_sets = {frozenset(task.knobs) for task in searched}
    # the fixed slot sets all four knobs
    assert len(searched_sets) == 7 and frozenset("ABCD") not in searched_sets
    assert plan_inputs(4, tried).new_directions == []
    assert len(plan(plan_inputs(5, tried))) == 4


def test_templates_replace_searches_at_the_state_of_the_art() -> None:
    kinds = [t.kind for t in plan(plan_inputs(4, templates=["one", "two"]))]
    assert kinds == ["planned", "rewrite", "rewrite", "fixed"]
    kinds = [t.kind for t in plan(plan_inputs(3, templates=["one"]))]
    assert kinds == ["planned"] * 3 + ["fixed"]


def test_plan_of_a_stagnation_is_reproducible() -> None:
    for without_gain in range(6):
        assert plan(plan_inputs(without_gain)) == plan(plan_inputs(without_gain))


def test_each_agent_gets_an_idea_and_the_brief() -> None:
    pool = PoolSpec(backends=("cli",), cli=(AGENT,))
    tasks = plan(plan_inputs(2, pool=pool, brief="## Stagnation"))
    ideas = stagnation.review(2)
    assert ideas is not None
    hypotheses = [task.hypothesis for task in tasks if task.kind == "planned"]
    assert len(set(hypotheses)) == 3
    assert all(idea.text in text for idea, text in zip(ideas.ideas, hypotheses, strict=False))
    assert all(task.brief == "## Stagnation" for task in tasks)


def test_brief_names_what_a_review_demands() -> None:
    text = stagnation.brief(stagnation.review(3))
    for words in ("## Stagnation: instructions", "The last 3 rounds kept nothing",
                  "machine code"):
        assert words in text
    assert text.count("\n- ") == 5
    assert stagnation.brief(None) == ""


def test_directions_that_lost_on_an_earlier_best_come_last() -> None:
    bottleneck = tunable(1, "A", "B", "C")
    fresh = stagnation.new_directions([bottleneck], stagnation.NOTHING, "review")
    lost = stagnation.TriedDirections(lost=frozenset({frozenset({"A"})}))
    again = stagnation.new_directions([bottleneck], lost, "review")
    assert fresh[0].knobs == ("A",) and again[-1].knobs == ("A",)
    assert {each.knobs for each in again} == {each.knobs for each in fresh}
