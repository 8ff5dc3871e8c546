"""Campaigns whose only slot is an agent's, which a scripted provider answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.campaign.setup import Setup
from engine.workers.model.scripted_provider import ScriptedProvider
from tests.support import campaigns


def create(root: Path, provider: ScriptedProvider, *, agent: dict[str, Any] | None = None,
           **fields: Any) -> Setup:
    """Make such a campaign; `agent` are further fields of pool.agent."""
    return campaigns.create(root, **fields, pool={
        "slots": 1, "workers": 1, "mode": "fixed", "backends": ["agent"],
        "agent": {"model": "openai/gpt-4o", "api_base": f"{provider.url}/v1", **(agent or {})}})
