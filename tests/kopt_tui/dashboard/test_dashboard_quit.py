"""Quitting stops an engine inside the dashboard, after a question."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kopt_tui.dashboard.dashboard import Dashboard
from kopt_tui.screens.confirm import ConfirmScreen
from tests.support.dashboards.dashboard_control_case import NARROW, make_workspace
from tests.support.dashboards.dashboard_journal import (
    CAMPAIGN,
)
from tests.support.dashboards.dashboard_pilot import open_app, until


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_workspace(tmp_path)


class Engine(threading.Thread):
    """A thread that runs until it is stopped, as the engine of `--here` does."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()

    def run(self) -> None:
        self.stopping.wait()

    def stop(self) -> None:
        self.stopping.set()


async def test_quitting_stops_the_engine_of_this_process_after_a_question(workspace: Path) -> None:
    engine = Engine()
    engine.start()
    app = open_app(workspace, campaign=CAMPAIGN, engine=engine)
    async with app.run_test(size=NARROW) as pilot:
        text = await until(pilot, "waits for you")
        assert "engine inside" in text
        await pilot.press("q")
        await until(pilot, "Quit and stop the campaign?")
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(app.screen, ConfirmScreen))
        assert engine.is_alive() and app.is_running
        await pilot.press("q")
        await until(pilot, "Quit and stop the campaign?")
        await pilot.press("right", "enter")
        await until(pilot, lambda: not app.is_running or app._exit)
    assert not engine.is_alive()


async def test_quitting_needs_no_question_without_a_live_engine(workspace: Path) -> None:
    for engine in (None, Engine()):
        if engine is not None:
            engine.start()
            engine.stop()
            engine.join()
        app: Dashboard = open_app(workspace, engine=engine)
        async with app.run_test(size=NARROW) as pilot:
            await until(pilot, "finished")
            await pilot.press("q")
            await until(pilot, lambda app=app: app._exit)  # type: ignore[misc]
