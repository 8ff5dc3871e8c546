"""Limits that a person may change while a campaign runs, by their full names or their ends."""

from __future__ import annotations

import pytest

from engine.manifest import limits
from engine.manifest.pool_schema import AgentSpec, PoolSpec
from engine.manifest.schema import Manifest
from harness.errors import InputError

MANIFEST = Manifest(target_op="x", pool=PoolSpec(agent=AgentSpec(model="m")))


def test_limits_of_agents_and_of_the_budget_are_set_by_any_end_of_their_names() -> None:
    changed = limits.with_limits(MANIFEST, {
        "agent.step_limit": "90", "cost_limit_usd": "5", "pool.agent.timeout_s": "3600",
        "worker_timeout_s": "3600", "budget.cost_usd": "20"})
    assert changed.pool.agent is not None
    assert (changed.pool.agent.step_limit, changed.pool.agent.cost_limit_usd,
            changed.pool.agent.timeout_s, changed.budget.cost_usd) == (90, 5.0, 3600.0, 20.0)
    assert limits.changes(MANIFEST, changed) == (
        "budget.cost_usd none → 20, pool.worker_timeout_s 1800 → 3600, "
        "pool.agent.step_limit 60 → 90, pool.agent.cost_limit_usd 3 → 5, "
        "pool.agent.timeout_s 1800 → 3600")
    freed = limits.with_limits(changed, {"agent.cost_limit_usd": "none"})
    assert freed.pool.agent is not None and freed.pool.agent.cost_limit_usd is None


@pytest.mark.parametrize(("manifest", "requested", "message"), [
    (Manifest(target_op="x"), {"agent.step_limit": "9"}, "the campaign has no agent"),
    (MANIFEST, {"agent.timeout_s": "3600"}, "longer than worker_timeout_s, 1800 s"),
    (MANIFEST, {"agent.step_limit": "0"}, "not a possible limit"),
    (MANIFEST, {"budget.cost_usd": "much"}, "not a possible limit"),
    (MANIFEST, {"agent.model": "other"}, "not a limit that can be changed"),
    (MANIFEST, {"_usd": "1"}, "not a limit that can be changed")])
def test_ineffective_impossible_or_unknown_limit_is_refused(
        manifest: Manifest, requested: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        limits.with_limits(manifest, requested)
