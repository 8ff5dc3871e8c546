"""An attempt's limits are the lower of the campaign's and its subagent's; changes apply at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.manifest.pool_schema import AgentSpec
from engine.subagents.subagent import Subagent
from engine.workers.model.attempt_limits import Allowance, AttemptLimits

SPEC = AgentSpec(model="m", step_limit=60, cost_limit_usd=3.0, timeout_s=600)


class Campaign:
    """What a campaign allows, which the tests change."""

    def __init__(self) -> None:
        self.now = Allowance(agent=SPEC, worker_timeout_s=900)

    def change(self, *, agent: dict[str, Any] | None = None, **fields: Any) -> None:
        spec = msgspec.structs.replace(SPEC, **(agent or {}))
        self.now = msgspec.structs.replace(self.now, agent=spec, **fields)


def subagent(**limits: Any) -> Subagent:
    return Subagent(name="s", description="", system_prompt="", **limits)


def test_limits_of_the_campaign_may_rise_and_fall_while_an_attempt_works() -> None:
    campaign = Campaign()
    limits = AttemptLimits(SPEC, None, 900, lambda: campaign.now)
    assert (limits.reached(60, 2.9), limits.wall_s) == ("", 600)
    assert limits.reached(61, 0.0) == "its limit of 60 steps is reached"
    assert limits.reached(1, 3.0) == "its limit of $3 is reached"
    campaign.change(agent={"step_limit": 90, "cost_limit_usd": None, "timeout_s": 1800.0},
                    worker_timeout_s=1200)
    assert (limits.reached(90, 99.0), limits.wall_s) == ("", 1200)
    campaign.change(agent={"step_limit": 5, "timeout_s": 30.0})
    assert (limits.reached(6, 0.0), limits.wall_s) == ("its limit of 5 steps is reached",
                                                         30)


def test_no_step_begins_once_the_campaign_has_used_its_budget() -> None:
    campaign = Campaign()
    limits = AttemptLimits(SPEC, None, 900, lambda: campaign.now)
    assert limits.reached(1, 0.0) == ""
    campaign.change(over_budget="$10.02 of $10 used by models")
    assert limits.reached(1, 0.0) == "budget: $10.02 of $10 used by models"
    campaign.change(over_budget="")  # a person has raised it
    assert limits.reached(1, 0.0) == ""


@pytest.mark.parametrize(("own", "steps", "usd", "wall_s"), [
    ({"step_limit": 0}, 60, 3, 600), ({"step_limit": 200}, 60, 3, 600),
    ({"step_limit": 20, "cost_limit_usd": 0.5, "timeout_s": 60.0}, 20, 0.5, 60)])
def test_a_subagent_lowers_limits_and_raises_none(own: dict[str, Any], steps: int, usd: float,
                                                  wall_s: float) -> None:
    limits = AttemptLimits(SPEC, subagent(**own), 900, None)
    assert limits.reached(steps, 0.0) == "" and limits.reached(1, usd - 0.01) == ""
    assert limits.reached(steps + 1, 0.0) == f"its limit of {steps} steps is reached"
    assert limits.reached(1, usd) == f"its limit of ${usd:g} is reached"
    assert limits.wall_s == wall_s
