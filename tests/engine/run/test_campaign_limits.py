"""Real campaigns stop at their wall budget, if no GPU is idle, and after regressions in a row."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from engine.campaign.setup import Setup
from engine.history import spending
from engine.journal.records import Round
from engine.run import baseline
from engine.run.running_campaign import RunningCampaign
from engine.verify.fleet_device import NoDeviceAvailable
from harness.formats import yaml_document
from tests.support.engines import campaigns
from tests.support.paths import SUPPORT

AGENT = SUPPORT / "agents/losing_agent.py"


def agent(name: str) -> dict[str, Any]:
    return {"slots": 1, "workers": 1, "backends": ["cli"], "cli": [
        {"name": name, "command": f"{{python}} {AGENT} {name} {{prompt}}", "timeout_s": 600,
         "cost": 0.5}]}


def rounds(setup: Setup) -> list[Round]:
    with campaigns.reading(setup) as reader:
        return reader.rounds(setup.id)


def change_manifest(setup: Setup, **fields: Any) -> Setup:
    """Change a campaign's manifest, as its owner may between two runs, and open it again."""
    path = setup.folder.manifest
    manifest = yaml_document.read(path).value
    path.write_text(yaml_document.dump({**manifest, **fields}))
    return campaigns.campaigns.open_campaign(setup.workspace, setup.id)


@pytest.mark.slow
def test_wall_budget_ends_workers_in_time_and_loses_no_gain(tmp_path: Path) -> None:
    """The worker never ends by itself; what it has found by the soft stop is measured and kept."""
    setup = campaigns.create(tmp_path, pool=agent("waits"), max_iterations=9,
                             performance_target="1 s")
    campaigns.run(setup)
    assert campaigns.campaign(setup).reason.startswith("performance_target 1 s: at most ")
    baseline_s = spending.spent(rounds(setup)).wall_s
    assert baseline_s > 0 and len(rounds(setup)) == 1

    wall_s = 3 * baseline_s + 10  # adapts to this machine's present speed
    setup = change_manifest(setup, performance_target=None, budget={"pairs": 4, "wall_s": wall_s})
    began = time.monotonic()
    assert campaigns.run(setup).error is None
    engine_s = time.monotonic() - began
    ended = campaigns.campaign(setup)
    assert ended.state == "finished" and ended.reason.startswith("budget: "), ended.reason
    assert len(campaigns.consistent(setup)) == 1
    assert ended.speedup is not None and ended.speedup > 2
    first = rounds(setup)
    assert first[1].outcome == "keep" and "ended early: " in first[1].summary
    assert all(round.ended_at for round in first)
    spent = spending.spent(first)
    assert wall_s / 2 <= spent.wall_s <= baseline_s + engine_s
    assert spent.cost == 0.5 * (len(first) - 1)
    text = setup.folder.performance.read_text()
    assert text.count("| keep |") == 1 and "- stop reason: budget: " in text

    assert campaigns.run(setup).error is None
    again = rounds(setup)
    assert [(r.n, r.outcome) for r in again] == [(r.n, r.outcome) for r in first]
    assert spending.spent(again).wall_s >= spent.wall_s, "spending continues"


def test_no_idle_gpu_for_an_hour_stops_campaign_without_fault(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def waited(_: RunningCampaign) -> None:
        raise NoDeviceAvailable("no idle GPU for 60:00 min: cuda:0: in use by process 7")

    setup = campaigns.create(tmp_path)
    monkeypatch.setattr(baseline, "prepare", waited)
    assert campaigns.run(setup).error is None
    ended = campaigns.campaign(setup)
    assert ended.state == "stopped" and ended.reason.startswith("no idle GPU for 60:00 min")
    assert "- stop reason: no idle GPU for 60:00 min" in setup.folder.performance.read_text()


@pytest.mark.slow
def test_consecutive_regressions_are_reviewed_and_end_campaign(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path, pool=agent("loses"), max_iterations=9,
                             stop={"consecutive_regressions": 2})
    campaigns.run(setup)
    assert campaigns.campaign(setup).reason == "2 consecutive measured regressions"
    assert [r.outcome for r in rounds(setup)] == ["baseline", "regression", "regression"]
    setup = change_manifest(setup, stop={"consecutive_regressions": 3})
    campaigns.run(setup)  # the count of regressions continues
    assert campaigns.campaign(setup).reason == "3 consecutive measured regressions"
    assert [r.outcome for r in rounds(setup)][1:] == ["regression"] * 3
    with campaigns.reading(setup) as reader:
        reviews = reader.events_of(setup.id, "stagnation")
    assert [event.ref for event in reviews] == ["4"] and b'"depth":"review"' in reviews[0].payload
    place = setup.folder.rounds / "round-4"
    assert "## Stagnation: review" in (place / "summary.md").read_text()
    prompt = (place / "candidates" / "fixed" / "worker-1.log").read_text()
    assert "The last 2 rounds kept nothing" in prompt and prompt.count("\n- round ") == 2
    first, last = setup.folder.performance.read_text().split("## Stop Summary")[1:]
    assert (first.count("| round "), last.count("| round ")) == (2, 3)
    assert "scale.c" in last and "small" in last
    before = {path: path.read_text() for path in (
        setup.folder.performance, setup.folder.log, setup.folder.trend, place / "summary.md")}
    before[setup.folder.log], _, report = before[setup.folder.log].rpartition("## Stop Summary")
    assert "## Final Report" in report, "the log has one, that of its last stop"
    for path in before:
        path.unlink()
    campaigns.run(setup)
    assert [path.read_text().startswith(text) for path, text in before.items()] == [True] * 4
