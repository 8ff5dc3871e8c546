"""A campaign whose workers all failed goes on once it is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.planning.planner import FRUITLESS
from tests.support.engines import campaigns, instant_verdicts
from tests.support.paths import SUPPORT


def test_resumed_campaign_tries_again_what_failed(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instant_verdicts.install(monkeypatch)
    provider = tmp_path / "provider-answers"
    agent = f"{{python}} {SUPPORT / 'agents/hostile_agent.py'} good {{prompt}} x"
    setup = campaigns.create(tmp_path, max_iterations=9, pool={
        "slots": 1, "mode": "fixed", "backends": ["cli"],
        "cli": [{"name": "a", "command": f"test -e {provider} && {agent}"}]})
    campaigns.run(setup)
    assert campaigns.campaign(setup).reason.startswith(
        f"nothing left to try: no slot of {FRUITLESS} rounds brought a candidate; fixed: ")
    begun = campaigns.campaign(setup).round
    assert begun == 1 + FRUITLESS
    campaigns.run(setup)  # the provider is still down: as many rounds again, and no more
    assert campaigns.campaign(setup).round == begun + FRUITLESS
    provider.touch()
    campaigns.run(setup)
    assert campaigns.candidates(setup, "kept")
