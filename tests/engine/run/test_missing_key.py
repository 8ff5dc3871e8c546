"""A campaign that goes on in a shell without its model's key uses up no rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.workers import agent
from tests.support.engines import campaigns
from tests.support.engines.campaigns import command

MISSING = "the variable KOPT_TEST_KEY is empty or not set"


@pytest.mark.skipif(bool(agent.missing_extra()), reason="needs the extra agent")
def test_campaign_without_its_models_key_says_so_and_uses_up_no_rounds(tmp_path: Path) -> None:
    """After a reboot a person resumed it in a new shell: its last rounds failed within a second,
    and it had finished, with `max_iterations: 5 rounds done`."""
    setup = campaigns.create(tmp_path, max_iterations=2, pool={
        "backends": ["agent"], "planner": "none", "slots": 2,
        "agent": {"model": "openai/gpt-4o", "key_env": "KOPT_TEST_KEY"}})
    assert campaigns.run(setup).error is None
    ended = campaigns.campaign(setup)
    assert ended.reason.startswith(f"nothing left to try: {MISSING}"), ended.reason
    assert (ended.state, ended.round) == ("finished", 1)
    with campaigns.reading(setup) as reader:
        [warning] = [event.payload for event in reader.events_of(setup.id, "warning")
                     if b"KOPT_TEST_KEY" in event.payload]
    assert b"pool.agent" in warning

    code, out, err = command("resume", workspace=setup.workspace)
    assert code == 1 and MISSING in " ".join(err.split())
    assert f"nothing left to try: {MISSING}" in " ".join(out.split())
