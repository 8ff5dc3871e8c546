"""The limits of an agent's attempt as they are now: a person may change them while it works."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from engine.manifest.pool_schema import AgentSpec
from engine.subagents.subagent import Subagent


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What a campaign allows its attempts at one moment."""

    agent: AgentSpec | None
    worker_timeout_s: float
    over_budget: str = ""
    """Why no model is asked any more, "" while the campaign's budget has something left."""


class AttemptLimits:
    """The limits of one attempt: the lowest of the campaign's and its subagent's.

    Without an `allowance`, those of `spec` count as the campaign's.
    """

    def __init__(self, spec: AgentSpec, subagent: Subagent | None, worker_timeout_s: float,
                 allowance: Callable[[], Allowance] | None) -> None:
        fixed = Allowance(agent=spec, worker_timeout_s=worker_timeout_s)
        self._spec, self._subagent = spec, subagent
        self._allowance = allowance or (lambda: fixed)

    @property
    def wall_s(self) -> float:
        """Seconds that the attempt may take from its start."""
        now = self._allowance()
        subagent_s = self._subagent.timeout_s if self._subagent else 0.0
        return min((now.agent or self._spec).timeout_s, now.worker_timeout_s, subagent_s
                   or math.inf)

    @property
    def steps(self) -> int:
        """How many answers the model may give."""
        limit = (self._allowance().agent or self._spec).step_limit
        return min(limit, (self._subagent.step_limit if self._subagent else 0) or limit)

    def reached(self, step: int, cost_usd: float) -> str:
        """Return the limit that forbids another step at this cost, or ""."""
        now = self._allowance()
        spec, subagent = now.agent or self._spec, self._subagent
        if step > self.steps:
            return f"its limit of {self.steps} steps is reached"
        limits = (spec.cost_limit_usd, subagent.cost_limit_usd if subagent else None)
        limit = min((limit for limit in limits if limit), default=math.inf)
        if cost_usd >= limit:
            return f"its limit of ${limit:g} is reached"
        return now.over_budget and f"budget: {now.over_budget}"
