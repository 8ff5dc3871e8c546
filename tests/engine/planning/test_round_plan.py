"""A round's plan: its shares, its order, one hypothesis a slot, the same after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.discovery.project import file_changes
from engine.knowledge import strategy_table
from engine.knowledge.strategy_table import StrategyPlace
from engine.manifest.pool_schema import CliSpec, PoolSpec
from engine.planning.plan_inputs import PlanWeights, SlotKindStats, planned_share
from engine.planning.round_plan import idle_slots, plan
from engine.planning.stagnation import PlannedIdea, TriedDirections
from engine.routing.rewrite_routes import Route
from engine.subagents.subagent_registry import DEFAULT
from engine.transformations.transformation_registry import ApplicableChange
from tests.support.searches.plan_case import AGENT, KNOBS, plan_inputs, tunable


@pytest.mark.parametrize(("fields", "share"), [
    ({"round": 2}, 2),
    ({"round": 2, "slots": 8}, 4),
    ({"round": 2, "slots": 1}, 0),
    ({"round": 5, "slots": 2}, 1),
    ({"pool": PoolSpec(mode="fixed")}, 0),
    ({"pool": PoolSpec(mode="planned")}, 3),
    ({"round": 5, "slots": 8}, 4),
    ({"round": 5, "slots": 8, "planned": SlotKindStats(speedups=(3.0, 3.0), slots=2),
      "fixed": SlotKindStats(speedups=(1.0,), slots=1)}, 6),
    ({"round": 5, "slots": 8, "planned": SlotKindStats(speedups=(1.0,), slots=8),
      "fixed": SlotKindStats(speedups=(4.0,), slots=1)}, 1),
    ({"round": 5, "slots": 8, "planned": SlotKindStats(speedups=(1000.0,), slots=1)}, 4),
    ({"round": 5, "slots": 4, "planned": SlotKindStats(speedups=(90.0,), slots=1)}, 3),
])
def test_planned_share_follows_mode_and_past_speedups(fields: dict[str, Any], share: int) -> None:
    assert planned_share(plan_inputs(**fields)) == share


@pytest.mark.parametrize("mode", ["mixed", "planned", "fixed"])
@pytest.mark.parametrize("slots", [1, 2, 4, 9])
def test_fixed_slot_is_always_there_and_last(mode: Any, slots: int) -> None:
    tasks = plan(plan_inputs(slots=slots, pool=PoolSpec(mode=mode), templates=("blocked",)))
    assert [task.slot for task in tasks].count("fixed") == 1 and tasks[-1].slot == "fixed"
    assert len(tasks) <= slots
    assert len({task.slot for task in tasks}) == len(tasks)


def test_every_slot_has_one_hypothesis_and_a_planned_one_its_bottleneck() -> None:
    tasks = plan(plan_inputs(slots=8, templates=("blocked",)))
    for task in tasks:
        assert task.hypothesis
        assert task.bottleneck.startswith("b2.") == (task.kind == "planned")
    planned = [task for task in tasks if task.kind == "planned"]
    assert planned and all(1 <= len(task.knobs) <= 2 for task in planned)
    assert all(name in task.hypothesis for task in planned for name in task.knobs)


def test_rewrites_fill_the_remaining_slots() -> None:
    names = ("one", "two", "three")
    tasks = plan(plan_inputs(slots=4, templates=names))
    assert [t.slot for t in tasks if t.kind == "rewrite"] == ["rewrite-one"]
    assert not [t for t in plan(plan_inputs(templates=names, pool=PoolSpec(mode="planned")))
                if t.kind == "rewrite"]
    without = PoolSpec(backends=("search",))
    assert not [t for t in plan(plan_inputs(templates=names, pool=without)) if t.kind == "rewrite"]


def test_plan_of_a_round_is_reproducible() -> None:
    assert plan(plan_inputs()) == plan(plan_inputs())
    seeds = [task.seed for task in plan(plan_inputs(slots=8)) if task.backend == "search"]
    assert len(set(seeds)) == len(seeds)
    assert seeds != [task.seed for task in plan(plan_inputs(slots=8, round=3))
                     if task.backend == "search"]


def test_inbox_patches_come_first_whatever_the_backends() -> None:
    paths = tuple(Path(f"/in/{name}.patch") for name in (*range(9), "\udcff"))
    tasks = plan(plan_inputs(inbox=paths))
    assert [task.slot for task in tasks[:4]] == ["inbox-1", "inbox-2", "inbox-3", "inbox-4"]
    assert tasks[0].option == "/in/0.patch"
    odd = plan(plan_inputs(inbox=paths[-1:]))[0]
    assert odd.hypothesis.encode()
    closed = PoolSpec(backends=("search", "rewrite-template"))
    assert [task.backend for task in plan(plan_inputs(inbox=paths, pool=closed))][:4] == [
        "inbox"] * 4, "a person who rejected a gain by mistake could not submit it again"


def test_agents_take_turns_with_the_search() -> None:
    pool = PoolSpec(backends=("search", "cli"), cli=(AGENT,))
    backends = [task.backend for task in plan(plan_inputs(slots=4, pool=pool))]
    assert backends == ["cli", "search", "cli", "search"]
    alone = plan(plan_inputs(slots=4, pool=pool, knobs=(), bottlenecks=()))
    assert [task.backend for task in alone] == ["cli"] * 4
    assert alone[-1].slot == "fixed"


def test_slots_without_other_work_follow_further_ideas_and_idle_ones_have_a_reason() -> None:
    inputs = plan_inputs(slots=8, knobs=(), pool=pool_of("one"), bottlenecks=(tunable(1),))
    tasks = plan(inputs)
    assert [task.kind for task in tasks] == ["planned"] * 7 + ["fixed"]
    assert len({task.hypothesis for task in tasks}) == 8 and not idle_slots(inputs, tasks)
    many = plan_inputs(slots=64, knobs=(), pool=pool_of("one"), bottlenecks=(tunable(1),))
    left = 64 - len(plan(many))
    assert left and idle_slots(many, plan(many)) == \
        f"{left} slots idle: no further idea differs from those of the others"
    alone = plan_inputs(slots=6, knobs=KNOBS[:1], bottlenecks=(tunable(1, "A"),))
    assert idle_slots(alone, plan(alone)).startswith("5 slots idle: no rewrite or transformation")


def test_agents_fill_every_slot_without_a_search() -> None:
    others = tuple(CliSpec(name=f"agent-{n}", command="agent {prompt}") for n in range(3))
    tasks = plan(plan_inputs(slots=4, pool=PoolSpec(mode="planned", backends=("cli",), cli=others)))
    assert [task.option for task in tasks] == ["agent-0", "agent-1", "agent-2", "agent-0"]


@pytest.mark.parametrize("backends", [("cli",), ("search", "cli")])
def test_agents_take_turns_from_round_to_round(backends: tuple[Any, ...]) -> None:
    """Every round began with the first agent: of four agents and two slots two never worked."""
    others = tuple(CliSpec(name=f"agent-{n}", command="agent {prompt}") for n in range(4))
    worked = [task.option for number in range(2, 6) for task in plan(plan_inputs(
        round=number, slots=2, pool=PoolSpec(backends=backends, cli=others)))
        if task.backend == "cli"]
    assert worked[0] == "agent-0" and set(worked) == {f"agent-{n}" for n in range(4)}


def test_nothing_to_do_is_an_empty_plan() -> None:
    assert plan(plan_inputs(knobs=(), bottlenecks=())) == []


def test_patch_keeps_its_slot_in_an_interrupted_round() -> None:
    """The first patch was judged before the engine was killed; the others keep their slots."""
    left = (Path("b.patch"), Path("c.patch"), Path("new.patch"))
    begun = {f"{name}.patch": f"inbox-{i}" for i, name in enumerate("abc", 1)}
    tasks = [task for task in plan(plan_inputs(inbox=left, inbox_slots=begun))
             if task.backend == "inbox"]
    assert [(t.slot, Path(t.option).stem) for t in tasks] == [
        ("inbox-2", "b"), ("inbox-3", "c"), ("inbox-4", "new")]


def test_interrupted_round_takes_no_more_patches_than_another() -> None:
    begun = {f"{name}.patch": f"inbox-{i}" for i, name in enumerate("abc", 1)}
    left = tuple(Path(f"inbox/{name}.patch") for name in ("c", "new", "newer"))  # a, b were judged
    tasks = [task for task in plan(plan_inputs(inbox=left, inbox_slots=begun))
             if task.backend == "inbox"]
    assert [(task.slot, Path(task.option).stem) for task in tasks] == [
        ("inbox-3", "c"), ("inbox-4", "new")]


def pool_of(*names: str, **fields: Any) -> PoolSpec:
    return PoolSpec(backends=("cli",), cli=tuple(
        CliSpec(name=name, command="agent {prompt}") for name in names), **fields)


@pytest.mark.parametrize("mode", ["mixed", "planned"])
@pytest.mark.parametrize("names", [("one",), ("one", "two", "three")])
def test_no_two_slots_follow_one_idea(mode: Any, names: tuple[str, ...]) -> None:
    tasks = plan(plan_inputs(slots=16, knobs=(), pool=pool_of(*names, mode=mode)))
    ideas = [task.hypothesis.partition(": ")[2] for task in tasks]
    assert len(set(ideas)) == len(ideas) >= 9
    assert all("\n" not in idea and ". " not in idea for idea in ideas)


def test_no_two_searches_of_a_round_move_the_same_knobs() -> None:
    for number in range(2, 8):
        searches = [frozenset(task.knobs or "ABC")
                    for task in plan(plan_inputs(round=number, slots=12))
                    if task.backend == "search"]
        assert len(set(searches)) == len(searches) > 1


ROUTES = (Route(subagent="tilelang-kernel-rewrite", language="tilelang", reason="attention"),
          Route(subagent="triton-to-tilelang", language="tilelang", reason="attention"),
          Route(subagent="ck-kernel-rewrite", language="ck", reason="attention"))


def test_agents_rewrite_once_in_each_language_and_the_fixed_slot_comes_last() -> None:
    tasks = plan(plan_inputs(slots=8, knobs=(), pool=pool_of("one", "two"), routes=ROUTES,
                             translations={"tilelang": "## Translation"}))
    rewrites = [task for task in tasks if task.kind == "rewrite"]
    assert [(task.slot, task.subagent, task.option) for task in rewrites] == [
        ("rewrite-tilelang", "tilelang-kernel-rewrite", "one"),
        ("rewrite-ck", "ck-kernel-rewrite", "two")]
    assert rewrites[0].brief.startswith("## Translation") and not rewrites[1].brief
    assert (tasks[-1].slot, tasks[-1].kind, tasks[-1].subagent) == ("fixed", "fixed", DEFAULT)
    assert {task.subagent for task in tasks if task.kind == "planned"} == {DEFAULT}


def test_search_needs_no_subagent_and_rewrites_need_an_author() -> None:
    tasks = plan(plan_inputs(slots=8, routes=ROUTES))
    assert {task.subagent for task in tasks} == {""} and not [
        task for task in tasks if task.kind == "rewrite"]
    planned_only = plan(plan_inputs(slots=8, pool=pool_of("one", mode="planned"), routes=ROUTES))
    assert not [task for task in planned_only if task.kind == "rewrite"]


def test_plan_weights_explain_the_share_of_planned_slots() -> None:
    later = plan_inputs(round=5, slots=8, planned=SlotKindStats(speedups=(1.5, 500.0), slots=3),
                        fixed=SlotKindStats(speedups=(1.2,), slots=2))
    assert str(PlanWeights.of(later)) == "weights: planned 0.50, others 0.60"
    assert str(PlanWeights.of(plan_inputs(round=2))) == \
        "half of the slots planned if the others have work"
    assert str(PlanWeights.of(plan_inputs(pool=PoolSpec(mode="fixed")))) == "mode fixed"


def test_planned_search_leaves_all_knobs_together_to_the_fixed_slot() -> None:
    both = (tunable(1, "A", "B"),)
    for number in range(2, 6):
        tasks = plan(plan_inputs(round=number, slots=6, knobs=KNOBS[:2], bottlenecks=both))
        assert sorted(task.knobs for task in tasks) == [(), ("A",), ("B",)]
    alone = plan(plan_inputs(knobs=KNOBS[:1], bottlenecks=(tunable(1, "A"),)))
    assert [task.slot for task in alone] == ["fixed"]


CHANGES = tuple(ApplicableChange(name=name, what=f"changes by {name}", knobs=knobs)
                for name, knobs in (("first", ("SUMS",)), ("second", ()), ("third", ())))


def test_transformations_take_turns_with_searches_and_fill_idle_slots() -> None:
    tasks = plan(plan_inputs(slots=6, changes=CHANGES))
    assert [task.backend for task in tasks] == [
        "search", "transform", "search", "transform", "transform", "search"]
    changes = [task for task in tasks if task.backend == "transform"]
    assert [task.option for task in changes] == ["first", "second", "third"]
    assert [task.trials > 0 for task in changes] == [True, False, False]
    assert all(task.bottleneck.startswith("b2.1") and task.kind == "planned" for task in changes)
    assert len({task.slot for task in tasks}) == 6
    assert plan(plan_inputs(round=3, slots=6, changes=CHANGES))[0].backend == "transform"


def test_kernel_without_knobs_gets_transformations_alone() -> None:
    tasks = plan(plan_inputs(slots=4, knobs=(), bottlenecks=(), changes=CHANGES))
    assert [task.option for task in tasks] == ["first", "second", "third"]


def test_transformation_is_made_once_on_a_best_and_a_lost_one_comes_last() -> None:
    tried = TriedDirections(transforms=frozenset({"second"}), lost_transforms=frozenset({"first"}))
    tasks = plan(plan_inputs(slots=6, changes=CHANGES, tried=tried))
    assert [task.option for task in tasks if task.backend == "transform"] == ["third", "first"]
    again = TriedDirections.of(tasks)
    assert again.transforms == {"third", "first"}


def test_transformation_is_made_once_in_each_file(tmp_path: Path) -> None:
    for name in ("a.c", "b.c", "frozen.c", "notes.txt"):
        (tmp_path / name).write_text("float twice(float x) { return x + x; }\n")
    changes = file_changes.of_files(tmp_path, ("*",), ("frozen.c",))
    assert {change.path for change in changes} == {"a.c", "b.c"}
    tried = TriedDirections(transforms=frozenset({changes[0].option}))
    tasks = plan(plan_inputs(slots=9, knobs=(), bottlenecks=(), changes=changes, tried=tried))
    made = [task.option for task in tasks if task.backend == "transform"]
    assert made == [change.option for change in changes[1:]] and made


@pytest.mark.parametrize("pool", [PoolSpec(mode="fixed"), PoolSpec(backends=("search",))])
def test_transformations_need_their_backend_and_planned_slots(pool: PoolSpec) -> None:
    tasks = plan(plan_inputs(slots=6, changes=CHANGES, pool=pool))
    assert not [task for task in tasks if task.backend == "transform"]


@pytest.mark.parametrize("language", ["c", "triton", "cuda"])
@pytest.mark.parametrize("limiter", ["memory", "compute", "latency", "not vectorised"])
def test_no_agent_follows_the_idea_of_a_transformation(language: Any, limiter: Any) -> None:
    place = StrategyPlace(op="norm", language=language, on_gpu=language != "c")
    names = [name for row in strategy_table.against(limiter, place)
             for name in row.transformations]
    limited = tunable(1)
    limited = msgspec.structs.replace(limited, bottleneck=msgspec.structs.replace(
        limited.bottleneck, limiter=limiter))
    tasks = plan(plan_inputs(
        slots=12, knobs=(), bottlenecks=(limited,), place=place,
        changes=tuple(ApplicableChange(name=name, what=name, knobs=())
                      for name in dict.fromkeys(names)),
        pool=PoolSpec(backends=("search", "transform", "cli"), cli=(AGENT,))))
    by_agents, by_transformations = (
        {task.idea for task in tasks if task.idea and (task.backend == "transform") == is_change}
        for is_change in (False, True))
    assert by_agents and bool(by_transformations) == bool(names)
    assert not by_agents & by_transformations


@pytest.mark.parametrize("key", sorted(strategy_table.listing(["c-relaxed-math"])))
def test_transformation_repeats_an_agents_idea_under_any_strategy_that_lists_it(key: str) -> None:
    change = ApplicableChange(name="c-relaxed-math", what="sums in another order", knobs=())
    idea = PlannedIdea(key=key, text="whatever a model may say")
    tasks = plan(plan_inputs(
        slots=3, knobs=(), bottlenecks=(tunable(1),), changes=(change,), suggested=(idea,),
        place=StrategyPlace(language="c"),
        pool=PoolSpec(backends=("transform", "cli"), cli=(AGENT,), mode="planned")))
    assert {task.backend for task in tasks} == {"cli"}


@pytest.mark.parametrize(("name", "suggested"), [
    ("c-relaxed-math", ""),  # the fixture's bottleneck is memory, whose advice this would follow
    ("c-relaxed-math", "move less data, in longer runs, and overlap the transfers"),
    ("first", "The first one changes by its sums!")])
def test_no_agent_says_in_other_words_what_a_transformation_does(name: str, suggested: str) -> None:
    change = ApplicableChange(name=name, what="the first one changes by sums", knobs=())
    ideas = (PlannedIdea(key="model-1", text=suggested),) if suggested else ()
    tasks = plan(plan_inputs(
        slots=12, knobs=(), bottlenecks=(tunable(1),), suggested=ideas, changes=(change,),
        place=StrategyPlace(language="c"),
        pool=PoolSpec(backends=("transform", "cli"), cli=(AGENT,))))
    assert "cli" in {task.backend for task in tasks}
    assert "transform" not in {task.backend for task in tasks}
