"""Campaigns are paused, resumed and stopped from the dashboard."""

from __future__ import annotations

from pathlib import Path

import pytest

from kopt_tui.control import ControlRequest, send
from tests.support.dashboards.dashboard_control_case import (
    NARROW,
    controls,
    engine_writer,
    make_workspace,
    open_dialog,
)
from tests.support.dashboards.dashboard_journal import (
    CAMPAIGN,
    NOW,
    Journal,
)
from tests.support.dashboards.dashboard_pilot import open_app, shown, until


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_workspace(tmp_path)


async def test_stop_needs_confirmation(workspace: Path) -> None:
    app = open_app(workspace)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "engine process 4121")
        await pilot.press("S")
        await until(pilot, f"Stop campaign {CAMPAIGN}?")
        await pilot.press("tab", "enter")
        await until(pilot, "stop rmsnorm_c_cpu_20261120 is recorded")
        assert [control.verb for control in controls(workspace)] == ["stop"]


async def test_campaign_without_an_engine_is_resumed_and_neither_paused_nor_stopped(
        workspace: Path) -> None:
    send(workspace, ControlRequest(campaign=CAMPAIGN, verb="pause"))
    journal = Journal(workspace)
    with journal.db:
        journal.db.execute("DELETE FROM leases")
    journal.close()
    app = open_app(workspace)
    async with app.run_test(size=(300, 24)) as pilot:
        await until(pilot, "✗ lost: its engine is gone")
        assert "pauses after this round" not in shown(app), "no engine reads the request"
        await pilot.press("p")
        await until(pilot, f"Resume campaign {CAMPAIGN}?")
        await until(pilot, "no engine is running: a new one starts")
        await pilot.press("escape", "S")
        await until(pilot, f"no engine runs {CAMPAIGN}: nothing to stop")
        assert [control.verb for control in controls(workspace)] == ["pause"]


async def test_pause_that_waits_for_the_end_of_the_round_can_be_cancelled(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await open_dialog(pilot, "p", f"Pause campaign {CAMPAIGN}?")
        await pilot.press("right", "enter")
        await until(pilot, "is recorded")
        await until(pilot, lambda: app.snapshot.controls)
        await until(pilot, "pauses after this round")
        await pilot.press("p")
        await until(pilot, "cancels the pause after this round")
        await pilot.press("right", "enter")
        await until(pilot, lambda: [control.verb for control in controls(workspace)]
                    == ["pause", "resume"])
        await until(pilot, lambda: len(app.snapshot.controls) == 2)
        await until(pilot, lambda: "pauses after this round" not in shown(app))
        await pilot.press("p")
        await until(pilot, f"Pause campaign {CAMPAIGN}?")


async def test_pause_key_offers_to_resume_a_paused_or_stopped_campaign(workspace: Path) -> None:
    writer = engine_writer(workspace)
    writer.set_campaign(CAMPAIGN, kind="campaign.state", payload={}, state="paused")
    writer.close()
    app = open_app(workspace)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "‖ paused")
        await pilot.press("p")
        await until(pilot, f"Resume campaign {CAMPAIGN}?")
        await pilot.press("escape", "j", "p")
        await until(pilot, "is finished: kopt set raises a limit")
        await pilot.press("j", "p")
        await until(pilot, "Resume campaign softmax")
        await until(pilot, "no engine is running")
        assert "campaign is stopped now" not in shown(app) and controls(workspace) == []


@pytest.mark.parametrize(("exhausted", "advice"), [
    ("c" * 40, "nothing is left to try; kopt submit PATCH judges your own change"),
    ("b" * 40, "kopt resume matmul_c_cpu_20261119 goes on from the new best")])
async def test_pause_key_names_what_can_follow_an_end_without_ideas(
        exhausted: str, advice: str, workspace: Path) -> None:
    name, journal = "matmul_c_cpu_20261119", Journal(workspace)
    journal.event(name, NOW, "campaign.stop", reason="nothing left to try: no ideas",
                  nothing_left_on=exhausted)
    with journal.db:
        journal.db.execute("UPDATE campaigns SET rounds_max = 20 WHERE id = ?", (name,))
    journal.close()
    app = open_app(workspace)
    async with app.run_test(size=(200, 50)) as pilot:
        await until(pilot, "finished")
        await pilot.press("j", "p")
        text = await until(pilot, f"{name} is finished: {advice}")
        assert "raises a limit" not in text
