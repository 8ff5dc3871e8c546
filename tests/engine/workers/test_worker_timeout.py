"""If a cli worker runs past its limit, what it has changed until then is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.engines import campaigns
from tests.support.paths import SUPPORT

AGENT = SUPPORT / "agents/hostile_agent.py"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "stage", "kept"), [
    ("dawdles", "kept", 1), ("hangs", "failed", 0)])
def test_worker_that_times_out_is_judged_by_what_it_had_changed(
        name: str, stage: str, kept: int, tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path, pool={"slots": 1, "backends": ["cli"], "cli": [
        {"name": name, "timeout_s": 3, "command": f"{{python}} {AGENT} {name} {{prompt}}"}]})
    campaigns.run(setup)
    assert campaigns.campaign(setup).state == "finished", campaigns.campaign(setup).reason
    assert len(campaigns.candidates(setup, "kept")) == kept
    [(actual, detail)] = campaigns.slots(setup).values()
    assert actual == stage and f"{name} ran past its limit of 3 s" in detail, (actual, detail)
