"""Drives the real app without a terminal; waits for content, never for time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from kopt_tui.dashboard.dashboard import Dashboard
from kopt_tui.snapshot.device_sampler import Sampler
from kopt_tui.snapshot.feed import Feed
from kopt_tui.snapshot.snapshot import DeviceLine, DeviceSnapshot, Focus, Snapshot
from tests.support.dashboards.dashboard_journal import NOW

DEVICES = DeviceSnapshot((DeviceLine(
    id="cpu", name="AMD EPYC 9B14",
    facts=(("use", "35%"), ("memory", "3.1 of 24 GiB"), ("clock", "2600 MHz"))),))


class FixedSampler(Sampler):
    """Posts the same devices on every machine."""

    def run(self) -> None:
        self._watched.wait()
        self._post(DEVICES)


def open_app(workspace: Path, *, campaign: str = "", readonly: bool = False,
             engine: object = None) -> Dashboard:
    """Return the app on a workspace, with a fixed clock."""
    app: Dashboard

    def post(snapshot: Snapshot) -> None:
        app.deliver(snapshot)

    feed = Feed(workspace, post, focus=Focus(campaign), clock=lambda: NOW)
    app = Dashboard(workspace, campaign=campaign, readonly=readonly, feed=feed,
                    engine=engine,  # type: ignore[arg-type]
                    sampler=FixedSampler(lambda seen: app.deliver_devices(seen)))
    return app


def shown(app: Dashboard) -> str:
    """Return what is on the screen as plain text."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def until(pilot: Pilot[None], wanted: str | Callable[[], object], limit: float = 30.0) -> str:
    """Wait until a text is on the screen or a condition holds; return the screen."""
    app = pilot.app
    assert isinstance(app, Dashboard)
    deadline = time.monotonic() + limit
    while True:
        if wanted in shown(app) if isinstance(wanted, str) else wanted():
            return shown(app)
        if time.monotonic() > deadline:
            raise AssertionError(f"{wanted!r} was not shown within {limit} s:\n{shown(app)}")
        await pilot.pause(0.02)
