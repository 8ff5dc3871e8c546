"""A campaign whose engine runs on another host, and the requests that a dashboard sends to it."""

from __future__ import annotations

import time
from pathlib import Path

from textual.pilot import Pilot

from engine.journal.liveness import Lease
from engine.journal.read import Reader
from engine.journal.records import Control
from engine.journal.write import Writer
from kopt_tui.screens.confirm import ConfirmScreen
from tests.support.dashboards.dashboard_journal import CAMPAIGN, make, own
from tests.support.dashboards.dashboard_pilot import until

NARROW = (80, 24)


def make_workspace(tmp_path: Path) -> Path:
    """Return a workspace with a campaign whose engine runs on another host."""
    make(tmp_path)
    own(tmp_path, Lease(campaign=CAMPAIGN, host="box boot ns", pid=4121, started=1.0, epoch=1,
                        heartbeat=time.time() + 1e6))
    return tmp_path


def engine_writer(workspace: Path) -> Writer:
    """Return a writer that holds the lease of the campaign's engine."""
    writer = Writer(workspace)
    writer.hold(CAMPAIGN, 1)
    return writer


def controls(workspace: Path) -> list[Control]:
    reader = Reader(workspace)
    try:
        return reader.controls(CAMPAIGN)
    finally:
        reader.close()


async def open_dialog(pilot: Pilot[None], keys: str, text: str) -> None:
    """Wait for the campaign's screen, press keys, wait for a dialog with a text."""
    await until(pilot, "waits for you")
    await pilot.press(*keys)
    await until(pilot, text)
    assert isinstance(pilot.app.screen, ConfirmScreen)
