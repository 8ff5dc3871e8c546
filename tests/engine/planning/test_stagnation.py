"""Rounds without a gain: when a review comes, how deep it goes, and which directions are new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.history.history import Regression
from engine.journal.records import Bottleneck
from engine.manifest.schema import CliSpec, PoolSpec
from engine.planning import directions, stagnation
from engine.planning.bottlenecks import TunableBottleneck
from engine.planning.round_plan import PlanInputs, plan, planned_share
from engine.planning.stagnation import DIRECTIONS
from harness.search.space.knobs import Knob

NAMES = ("A", "B", "C", "D")
KNOBS = tuple(Knob(name=name, line=n, value=1, choices=(1, 2)) for n, name in enumerate(NAMES, 1))
AGENT = CliSpec(name="agent", command="agent {prompt}")


def lead(rank: int, *names: str, limiter: str = "memory") -> TunableBottleneck:
    return TunableBottleneck(knobs=names, bottleneck=Bottleneck(
        campaign="c", round=2, rank=rank, id=f"b2.{rank}", kernel="k", config_class="tall",
        limiter=limiter, metric="% of roofline", value=12.0, detail="slow", advice="move less"))


LEADS = (lead(1, *NAMES), lead(2, "C", limiter="not vectorised"))


def outlook(rollbacks: int = 0, tried: frozenset[str] = frozenset(), **fields: Any) -> PlanInputs:
    given: dict[str, Any] = {"campaign": "c", "round": 7, "slots": 4, "pool": PoolSpec(),
                             "knobs": KNOBS, "leads": LEADS, "tried": tried,
                             "review": stagnation.review(rollbacks, tried)}
    return PlanInputs(**(given | fields))


@pytest.mark.parametrize(("rollbacks", "depth", "width"), [
    (0, None, 1), (1, None, 1),
    (2, "review", 2),
    (3, "instructions", 2),
    (4, "state of the art", 4), (5, "state of the art", 4), (50, "state of the art", 4),
])
def test_two_rollbacks_in_a_row_are_reviewed_and_more_go_deeper(
        rollbacks: int, depth: str | None, width: int) -> None:
    found = stagnation.review(rollbacks)
    assert (None if found is None else found.depth) == depth
    assert outlook(rollbacks).trials == width * PoolSpec().trials
    if found is not None:
        assert found.rollbacks == rollbacks and found.width == width
        assert found.demands and len(found.ideas) >= DIRECTIONS


def test_ideas_that_a_slot_had_are_not_new() -> None:
    first = stagnation.review(2)
    assert first is not None
    again = stagnation.review(2, [f"agent: {first.ideas[0]}, against memory"])
    assert again is not None and again.ideas == first.ideas[1:]
    deeper = stagnation.review(3, first.ideas)
    assert deeper is not None and not set(deeper.ideas) & set(first.ideas)


PLACES = ("against memory in tall", "against latency in odd")


def reviewed(tried: Sequence[str], places: Sequence[str] = PLACES) -> tuple[str, ...]:
    found = stagnation.review(2, tried, places)
    assert found is not None
    return found.ideas


@pytest.mark.parametrize("left", range(6))
def test_where_ideas_run_out_they_are_aimed_at_the_bests_bottlenecks(left: int) -> None:
    first = reviewed(())
    tried = [f"agent: {idea}, {PLACES[0]}" for idea in first[left:]]
    found = reviewed(tried)
    assert len(found) == max(left, DIRECTIONS) == len(set(found))
    assert found[:left] == first[:left]
    assert all(not any(one in text for text in tried) for one in found)
    assert all(one.endswith(PLACES[1]) for one in found[left:])


def test_a_repeat_is_called_one() -> None:
    first = reviewed(())
    tried = [f"agent: {idea}, {place}" for idea in first for place in PLACES]
    assert reviewed(tried) == tuple(f"again: {idea}" for idea in first[:DIRECTIONS])
    assert reviewed(tried[1:])[0].startswith("again: ") is False
    assert reviewed(first, ()) == tuple(f"again: {idea}" for idea in first[:DIRECTIONS])
    assert stagnation.named(("x",), reviewed(tried)) == ("x", *reviewed(tried)[:2])
    text = stagnation.brief(stagnation.review(2, tried, PLACES), [])
    assert "nobody has followed yet" not in text and "followed before" in text
    some = stagnation.brief(stagnation.review(2, tried[1:], PLACES), [])
    assert "nobody has followed yet" in some and "followed before" in some


def test_agents_work_on_the_bottleneck_that_their_direction_names() -> None:
    pool = PoolSpec(backends=("cli",), cli=(AGENT,))
    ideas = reviewed(())
    tried = frozenset(f"agent: {idea}, against memory in tall" for idea in ideas)
    places = stagnation.places(LEADS)
    assert places == ("against memory in tall", "against not vectorised in tall")
    tasks = plan(outlook(2, pool=pool, tried=tried, review=stagnation.review(2, tried, places)))
    planned = [task for task in tasks if task.kind == "planned"]
    assert len(planned) == 3
    for idea, task in zip(ideas, planned, strict=False):
        assert task.hypothesis == f"agent: {idea}, against not vectorised in tall"
        assert task.bottleneck.startswith("b2.2 ")


@pytest.mark.parametrize(("found", "count"), [((), 3), (("x",), 3), (("x", "y", "z", "w"), 4)])
def test_a_review_names_three_new_directions_at_least(found: tuple[str, ...], count: int) -> None:
    named = stagnation.named(found, ("one", "two", "three", "four"))
    assert len(named) == count and named[:len(found)] == found and len(set(named)) == count


def moved(found: list[directions.SearchDirection]) -> list[str]:
    return ["".join(one.knobs) for one in found]


def test_directions_of_different_bottlenecks_take_turns_and_none_comes_twice() -> None:
    assert moved(directions.new(LEADS, (), "review")) == \
        ["A", "C", "B", "D", "AB", "BC", "CD", "ABCD"]


def test_below_a_review_what_the_compiler_says_goes_first() -> None:
    assert moved(directions.new(LEADS, (), "instructions"))[:2] == ["C", "A"]


def test_at_the_state_of_the_art_everything_moves_first() -> None:
    assert moved(directions.new(LEADS, (), "state of the art"))[:3] == ["ABCD", "C", "AB"]


@given(st.permutations(NAMES).flatmap(lambda names: st.integers(1, 4).map(lambda n: names[:n])),
       st.sampled_from(["review", "instructions", "state of the art"]))
def test_what_was_tried_is_not_new_whatever_its_order_or_bottleneck(
        names: list[str], depth: Any) -> None:
    tried = [directions.words(lead(9, limiter="latency"), names)]
    left = directions.new(LEADS, tried, depth)
    assert frozenset(names) not in [frozenset(one.knobs) for one in left]
    assert all(one.hypothesis not in tried for one in left)


@given(st.lists(st.sampled_from([one.hypothesis for one in directions.new(LEADS, (), "review")])))
def test_every_direction_is_new_until_it_was_tried(tried: list[str]) -> None:
    left = directions.new(LEADS, tried, "review")
    assert len(left) == 8 - len(set(tried))


@pytest.mark.parametrize(("slots", "share"), [(1, 0), (2, 1), (3, 2), (4, 3), (8, 4)])
def test_a_review_has_room_for_three_directions(slots: int, share: int) -> None:
    assert planned_share(outlook(2, slots=slots)) == share


def test_a_reviewed_round_follows_new_directions_only() -> None:
    usual = plan(outlook())
    tried = frozenset(task.hypothesis for task in usual)
    tasks = plan(outlook(2, tried))
    planned = [task for task in tasks if task.kind == "planned"]
    assert len(planned) == 3 and tasks[-1].slot == "fixed"
    assert not {task.hypothesis for task in planned} & tried
    assert len({frozenset(task.knobs) for task in planned}) == 3
    assert all(task.bottleneck.startswith("b2.") for task in planned)


def test_round_after_round_other_directions_until_there_are_none() -> None:
    tried: frozenset[str] = frozenset()
    followed: list[frozenset[str]] = []
    for number in range(3):
        tasks = [t for t in plan(outlook(2 + number, tried, round=7 + number))
                 if t.kind == "planned"]
        followed += [frozenset(task.knobs) for task in tasks]
        tried |= {task.hypothesis for task in tasks}
    assert len(set(followed[:8])) == 8
    assert outlook(4, tried).new == []
    assert len(plan(outlook(5, tried))) == 4, "it goes on with what there is, wider"


def test_at_the_state_of_the_art_known_forms_take_the_places_of_searches() -> None:
    kinds = [t.kind for t in plan(outlook(4, templates=("one", "two")))]
    assert kinds == ["planned", "rewrite", "rewrite", "fixed"]
    assert [t.kind for t in plan(outlook(3, templates=("one",)))] == ["planned"] * 3 + ["fixed"]


def test_the_same_stagnation_is_planned_again_the_same() -> None:
    for rollbacks in range(6):
        assert plan(outlook(rollbacks)) == plan(outlook(rollbacks))


def test_agents_get_an_idea_each_and_the_brief() -> None:
    pool = PoolSpec(backends=("cli",), cli=(AGENT,))
    tasks = plan(outlook(2, pool=pool, brief="## Stagnation"))
    ideas = stagnation.review(2)
    assert ideas is not None
    told = [task.hypothesis for task in tasks if task.kind == "planned"]
    assert len(set(told)) == 3
    assert all(idea in text for idea, text in zip(ideas.ideas, told, strict=False))
    assert all(task.brief == "## Stagnation" for task in tasks)


LOST = Regression(round=4, at=1.0, baseline="b", candidate="c", hypothesis="unroll \x1b[31mby\n8",
                  bottleneck="b1", files=("k.c",), wall_us=(10.0, 12.5), kernel_us=None,
                  change=0.25, points=("tall 25.0% slower",))


def test_the_brief_says_what_was_rolled_back_and_what_is_asked() -> None:
    text = stagnation.brief(stagnation.review(3), [LOST])
    for words in ("## Stagnation: instructions", "The last 3 rounds were rolled back",
                  "machine code", "Do not repeat these",
                  "round 4: unroll by 8: +25.0% time (tall 25.0% slower)"):
        assert words in text
    assert text.count("\n- ") == 6
    assert stagnation.brief(None, []) == ""
