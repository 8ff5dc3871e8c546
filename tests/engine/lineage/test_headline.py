"""The headline, the best's speedup against the baseline, does not decrease once accepted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.campaign.setup import Setup
from engine.context import EngineContext
from engine.history import history
from engine.lineage import headline
from harness.verdict import Row
from tests.support.dashboards import samples
from tests.support.engines import rollback_case
from tests.support.engines.campaigns import campaign, reading, run
from tests.support.engines.falling_host import falling
from tests.support.engines.rollback_case import checked_best, events, hand_in, kept_commits
from tests.support.paths import SUPPORT

HOST = SUPPORT / "engines/falling_host.py"


def row(log_ratio: float, **fields: Any) -> Row:
    given: dict[str, Any] = {"config_class": "tall", "correct": True, "log_ratio": log_ratio,
                             "stderr": 0.001, "pairs": 5, "core": True}
    return Row(**(given | fields))


@pytest.mark.parametrize(("fields", "message"), [
    ({}, ""),
    ({"speedup": 0.99, "speedup_low": 0.97, "speedup_high": 1.01}, ""),
    ({"speedup": 0.97, "speedup_low": 0.95, "speedup_high": 0.99},
     "the best is significantly slower than the baseline: 0.97x [0.95, 0.99]"),
    ({"rows": (row(0.3), row(-0.06, config_class="wide"))},
     "against the baseline core class wide loses 6.2%"),
    ({"rows": (row(-0.06, core=False),)}, ""), ({"rows": (row(-0.04),)}, ""),
    ({"rows": (row(-0.06, stderr=0.1),)}, ""),
    ({"speedup": None, "speedup_low": None, "speedup_high": None}, ""),
])
def test_significant_loss_is_described(fields: dict[str, Any], message: str) -> None:
    assert headline.describe_loss(samples.verdict(**fields)) == message


def create(root: Path) -> Setup:
    """Make a campaign with three accepted gains and a candidate for a fourth."""
    setup = rollback_case.create(root, "D", full_test_command="python -c pass")
    assert run(setup).error is None and len(kept_commits(setup)) == 3
    hand_in(setup, "D")
    return setup


def run_killed_at(setup: Setup, step: str) -> int:
    return subprocess.run(
        [sys.executable, str(HOST), str(setup.workspace), setup.id], timeout=200, check=False,
        env={**os.environ, "KOPT_FAILPOINT": step,
             "PYTHONPATH": str(HOST.parents[2])}).returncode


def warnings(setup: Setup) -> list[str]:
    return [event["message"] for event in events(setup, "warning")]


@pytest.mark.slow
def test_best_that_falls_twice_is_rolled_back_and_campaign_continues(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = create(tmp_path)
    before, accepted = campaign(setup), checked_best(setup)
    monkeypatch.setattr(EngineContext, "verdict", falling())
    assert run(setup).error is None
    fallen = kept_commits(setup)[-1]
    assert checked_best(setup) == accepted != fallen and campaign(setup).speedup == before.speedup
    [rollback] = events(setup, "rollback")
    assert (rollback["before"], rollback["commit"], rollback["ends"]) == (fallen, accepted, False)
    assert rollback["reason"].startswith("the best is not accepted, measured twice: the best "
                                         "measures 1.25")
    assert "accepted scores may not fall by more than 1 %" in rollback["reason"]
    assert "not accepted" not in campaign(setup).reason and campaign(setup).state == "finished"
    summary = (setup.folder.round(3) / "summary.md").read_text()
    assert f"rolled back to {accepted[:12]}, which passes it" in summary
    assert f"- rolled back: from {fallen[:12]}: the best is not" in \
        setup.folder.performance.read_text()
    assert f"## Rolled back to {accepted[:12]}" in setup.folder.log.read_text()
    snapshot = setup.folder.round(3) / "kernel_snapshot" / "kernel.py"
    assert "D = 60.0" in snapshot.read_text()
    assert warnings(setup) == []


@pytest.mark.slow
def test_best_that_fell_once_is_measured_again_and_accepted(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = create(tmp_path)
    before = campaign(setup)
    monkeypatch.setattr(EngineContext, "verdict", falling(1))
    assert run(setup).error is None
    assert checked_best(setup) == kept_commits(setup)[-1] != before.best_commit
    assert (campaign(setup).speedup or 0.0) > (before.speedup or 0.0)
    assert events(setup, "rollback") == []
    assert any("measured again" in event.get("message", "") for event in events(setup, "log"))


@pytest.mark.slow
def test_drop_within_noise_is_accepted_with_warning(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gain was significant when it was kept; noise must not decide a rollback."""
    setup = create(tmp_path)
    before = campaign(setup)
    monkeypatch.setattr(EngineContext, "verdict", falling(sure=False))
    assert run(setup).error is None
    assert checked_best(setup) == kept_commits(setup)[-1] != before.best_commit
    assert events(setup, "rollback") == []
    [warning] = warnings(setup)
    assert "accepted scores may not fall" in warning
    assert warning.endswith("noise may explain the drop")


@pytest.mark.slow
@pytest.mark.parametrize("step", ["headline.doubted", "headline.again", "rollback.recorded",
                                  "rollback.restored", "rollback.over"])
def test_killed_rollback_is_finished(tmp_path: Path, step: str,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    setup = create(tmp_path)
    accepted = checked_best(setup)
    monkeypatch.setattr(EngineContext, "verdict", falling())
    assert run_killed_at(setup, step) == -signal.SIGKILL, campaign(setup)
    assert run(setup).error is None
    assert checked_best(setup) == accepted and len(events(setup, "rollback")) == 1
    with reading(setup) as reader:
        rounds = reader.rounds(setup.id)
        verdicts = [row.purpose for row in reader.verdicts(setup.id)]
        assert history.read(reader, setup.id).undone == {kept_commits(setup)[-1]}
    assert verdicts.count("headline-doubted") == 1 and verdicts.count("headline") == 2
    assert rounds[-1].summary.endswith(f"rolled back to {accepted[:12]}, which passes it")
    assert (campaign(setup).state, warnings(setup)) == ("finished", [])
