"""Campaigns of kopt's agent that run one slot at a time; a scripted provider plays the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.campaign.setup import Setup
from tests.support.agents.scripted_provider import ScriptedProvider
from tests.support.engines import campaigns


def create(root: Path, provider: ScriptedProvider, *, agent: dict[str, Any] | None = None,
           slots: int = 1, pool: dict[str, Any] | None = None, **fields: Any) -> Setup:
    """Make a campaign whose agent asks `provider`; `agent` and `pool` add fields to theirs."""
    return campaigns.create(root, **fields, pool={
        "slots": slots, "workers": 1, "mode": "fixed" if slots == 1 else "mixed", "rewrites": [],
        "backends": ["agent"], "planner": "none",
        "agent": {"model": "openai/gpt-4o", "api_base": f"{provider.url}/v1", **(agent or {})},
        **(pool or {})})
