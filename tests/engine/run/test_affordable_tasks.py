"""Tasks get the trials, the time and the cost that a campaign has left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.history import spending
from engine.history.history import CampaignHistory
from engine.journal.read import Reader
from engine.journal.records import Round
from engine.journal.write import Writer
from engine.judge.stop_rules import BudgetUsed
from engine.manifest.load import parse
from engine.manifest.pool_schema import CliSpec, PoolSpec
from engine.manifest.schema import BudgetSpec
from engine.task import Task
from tests.support.dashboards import samples


def tasks(*trials: int, agents: int = 0) -> list[Task]:
    made = [Task(slot=f"agent-{n}", kind="planned", backend="cli", hypothesis="h", bottleneck="b",
                 seed=1, trials=0, option="agent") for n in range(agents)]
    return made + [Task(slot=f"s{n}", kind="planned", backend="search", hypothesis="h",
                        bottleneck="b", seed=1, trials=count) for n, count in enumerate(trials)]


def past(*rounds: tuple[float, int]) -> CampaignHistory:
    return CampaignHistory(folder=Path("/nowhere"), base="b", rounds=tuple(
        Round(campaign="c", n=n, scope="global", incumbent="b", started_at=1.0, ended_at=2.0,
              outcome="tie", spent_s=spent_s, trials=trials)
        for n, (spent_s, trials) in enumerate(rounds, 2)))


@pytest.mark.parametrize(("given", "used", "earlier", "kept_s", "allowed"), [
    ({}, {}, (), 0.0, [24, 24, 24]),
    ({"trials": 100}, {"trials": 0}, (), 0.0, [24, 24, 24]),
    ({"trials": 100}, {"trials": 70}, (), 0.0, [10, 10, 10]),
    ({"trials": 100}, {"trials": 90}, (), 0.0, [3, 3, 4]),
    ({"trials": 100}, {"trials": 99}, (), 0.0, [1]),
    ({"trials": 100}, {"trials": 120}, (), 0.0, []),
    ({"wall_s": 100}, {"wall_s": 0}, (), 0.0, [24, 24, 24]),
    ({"wall_s": 100}, {"wall_s": 60}, ((20.0, 20),), 10.0, [10, 10, 10]),
    ({"wall_s": 100}, {"wall_s": 99}, ((20.0, 20),), 10.0, [1]),
    ({"wall_s": 100, "trials": 50}, {"wall_s": 0, "trials": 44}, ((1.0, 90),), 0.0, [2, 2, 2]),
])
def test_searches_get_remaining_trials_and_time(
        given: dict[str, Any], used: dict[str, Any], earlier: tuple[tuple[float, int], ...],
        kept_s: float, allowed: list[int]) -> None:
    affordable = spending.afford(tasks(24, 24, 24), PoolSpec(), BudgetSpec(**given),
                                 BudgetUsed(**used), past(*earlier), kept_s)
    assert [task.trials for task in affordable] == allowed
    assert not affordable or affordable[-1].slot == "s2", "the last slot is dropped last"


def test_trial_is_estimated_at_half_a_verdict_at_first_and_at_most_one(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.add_campaign(samples.campaign())
    writer.add_verdict("rms", "c1", samples.verdict(wall_s=6.0), purpose="baseline")
    known = msgspec.structs.replace(past(), verdicts={
        row.id: row for row in Reader(tmp_path).verdicts("rms")})
    found = spending.afford(tasks(24, 24), PoolSpec(), BudgetSpec(wall_s=60),
                            BudgetUsed(wall_s=10), known, 20.0)
    assert [task.trials for task in found] == [5, 5]
    slow = msgspec.structs.replace(known, rounds=past((1800.0, 6)).rounds)  # six screenings
    found = spending.afford(tasks(24, 24), PoolSpec(), BudgetSpec(wall_s=90),
                            BudgetUsed(wall_s=10), slow, 20.0)
    assert [task.trials for task in found] == [5, 5]


@pytest.mark.parametrize(("limit", "used", "agents"), [
    (None, 1e9, 3), (10.0, 0.0, 3), (10.0, 5.0, 2), (10.0, 8.5, 0), (10.0, 8.0, 1)])
def test_unaffordable_attempts_are_not_begun(limit: float | None, used: float,
                                                            agents: int) -> None:
    pool = PoolSpec(cli=(CliSpec(name="agent", command="a", cost=2.0),))
    found = spending.afford(tasks(24, agents=3), pool, BudgetSpec(cost=limit),
                            BudgetUsed(cost=used), past(), 0.0)
    assert sum(task.backend == "cli" for task in found) == agents
    assert found[-1].trials == 24


@pytest.mark.parametrize(("limit", "used_usd", "models"), [
    (None, 1e9, 3), (5.0, 0.0, 3), (5.0, 4.99, 3), (5.0, 5.0, 0), (5.0, 7.0, 0)])
def test_models_are_asked_while_their_budget_has_something_left(
        limit: float | None, used_usd: float, models: int) -> None:
    made = [msgspec.structs.replace(task, backend="agent", option="")
            if task.backend == "cli" else task for task in tasks(24, agents=3)]
    found = spending.afford(made, PoolSpec(), BudgetSpec(cost_usd=limit),
                            BudgetUsed(cost_usd=used_usd), past(), 0.0)
    assert [task.backend for task in found] == ["agent"] * models + ["search"]


@given(st.lists(st.integers(1, 40), max_size=6), st.integers(1, 300), st.integers(0, 300))
def test_trial_budget_is_never_exceeded(wanted: list[int], limit: int, used: int) -> None:
    found = spending.afford(tasks(*wanted), PoolSpec(), BudgetSpec(trials=limit),
                            BudgetUsed(trials=used), past(), 0.0)
    assert sum(task.trials for task in found) <= max(0, limit - used)
    assert all(task.trials > 0 for task in found)
    if sum(wanted) <= limit - used:
        assert [task.trials for task in found] == wanted


def test_manifest_states_cost_of_an_attempt() -> None:
    manifest = parse("target_op: x\nbudget: {cost: 5}\npool:\n  backends: [cli]\n  cli:\n"
                     "    - {name: a, command: 'a {prompt}', cost: 0.4}\n", "m")
    assert (manifest.budget.cost, manifest.pool.cli[0].cost) == (5.0, 0.4)
    assert msgspec.json.decode(msgspec.json.encode(manifest), type=type(manifest)) == manifest
