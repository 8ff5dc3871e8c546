"""Campaigns whose agent repairs its candidates, and engines that are killed during a repair."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from engine.campaign.setup import Setup
from tests.support.engines import campaigns, killed_campaign
from tests.support.paths import ROOT, SUPPORT

AGENT = SUPPORT / "agents/mending_agent.py"


def create(root: Path, *words: str, **fields: Any) -> Setup:
    command = " ".join(["{python}", str(AGENT), "{prompt}", *words])
    return campaigns.create(root, pool={
        "slots": 1, "workers": 1, "backends": ["cli"],
        "cli": [{"name": "mender", "command": command, "cost": 1.0}]}, **fields)


def decisions(setup: Setup) -> list[tuple[str, str]]:
    with campaigns.reading(setup) as reader:
        return [(d.kind, d.reason) for d in reversed(reader.decisions(setup.id))]


def start_engine(setup: Setup, **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "engine.run.host", str(setup.workspace), setup.id],
        env={**os.environ, **env}, cwd=ROOT, start_new_session=True)


def is_killed(setup: Setup, step: str = "second-try.begun") -> bool:
    """Run an engine; return whether it died at a failpoint, rather than ended."""
    return start_engine(setup, KOPT_FAILPOINT=step).wait(120) == -signal.SIGKILL


def same_when_killed(root: Path, by_command: str, kinds: list[str]) -> None:
    """Check that killing the engine in each repair leaves the same records as no kill.

    Measurements and the clock are fixed; `kinds` are the decisions that both campaigns make.
    """
    agent = root / "agent.py"
    agent.write_text(by_command)
    manifest = {**killed_campaign.MANIFEST, "max_iterations": 1, "pool": {
        "slots": 1, "workers": 1, "backends": ["cli"], "cli": [
            {"name": "mender", "command": f"{{python}} {agent} {{prompt}}"}]}}
    records = {}
    for name, kills in (("undisturbed", 0), ("killed", kinds.count("repair"))):
        setup = killed_campaign.create(root / name, manifest)
        for path in setup.folder.inbox.iterdir():
            path.unlink()
        for _ in range(kills):
            assert killed_campaign.is_killed(setup)
        assert killed_campaign.host(setup).wait(120) == 0
        assert [kind for kind, _ in decisions(setup)] == kinds
        records[name] = killed_campaign.records(setup)
    assert records["killed"] == records["undisturbed"] and len(records["killed"]) >= 7
