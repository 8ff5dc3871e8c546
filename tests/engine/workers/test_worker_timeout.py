"""A cli worker that runs past its own limit: what it has made is judged like any other's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import campaigns
from tests.support.paths import SUPPORT

AGENT = SUPPORT / "hostile_agent.py"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "stage", "kept"), [
    ("dawdles", "kept", 1), ("hangs", "failed", 0)])
def test_what_is_there_at_the_limit_is_judged(name: str, stage: str, kept: int,
                                              tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path, pool={"slots": 1, "backends": ["cli"], "cli": [
        {"name": name, "timeout_s": 3, "command": f"{{python}} {AGENT} {name} {{prompt}}"}]})
    campaigns.run(setup)
    assert campaigns.campaign(setup).state == "finished", campaigns.campaign(setup).reason
    assert len(campaigns.candidates(setup, "kept")) == kept
    [(found, detail)] = campaigns.slots(setup).values()
    assert found == stage and f"{name} ran past its limit of 3 s" in detail, (found, detail)
