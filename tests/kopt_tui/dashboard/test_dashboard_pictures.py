"""Tests how whole screens look, drawn from fixed data with a fixed clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.journal.liveness import Lease
from tests.support.agents import transcript_case
from tests.support.dashboards.dashboard_journal import CAMPAIGN, make, own
from tests.support.dashboards.dashboard_pilot import open_app, until

Compare = Callable[..., bool]


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    make(tmp_path)
    own(tmp_path, Lease(campaign=CAMPAIGN, host="box boot ns", pid=4121, started=1.0, epoch=1,
                        heartbeat=time.time() + 1e6))
    return tmp_path


@pytest.mark.parametrize(("size", "campaign", "keys", "texts"), [
    ((80, 24), "", [], ["engine process 4121", "6.40x"]),
    ((80, 24), CAMPAIGN, [], ["LANES in 4..32", "✓2"]),
    ((200, 50), CAMPAIGN, [], ["LANES in 4..32", "✓2", "1.89x", "AMD EPYC", "mask the last"]),
    ((80, 24), CAMPAIGN, ["a"], ["Let it wait"]),
], ids=["campaigns", "campaign", "campaign-wide", "approve"])
def test_screen_matches_its_snapshot(workspace: Path, snap_compare: Compare, size: tuple[int, int],
                                     campaign: str, keys: list[str], texts: list[str]) -> None:
    async def show_texts(pilot: Pilot[None]) -> None:
        await until(pilot, "rmsnorm_c_cpu_20261120")
        await until(pilot, lambda: pilot.app.snapshot.view)  # type: ignore[attr-defined]
        for key in keys:
            await until(pilot, "waits for you")
            await pilot.press(key)
        for text in texts:
            await until(pilot, text)
        await pilot.pause()

    assert snap_compare(open_app(workspace, campaign=campaign), terminal_size=size,
                        run_before=show_texts)


def test_transcript_matches_its_snapshot(workspace: Path, snap_compare: Compare) -> None:
    transcript_case.add_slot(workspace)
    transcript_case.write(transcript_case.path_of(workspace), *transcript_case.session(11))

    async def search_transcript(pilot: Pilot[None]) -> None:
        await until(pilot, "waits for you")
        await pilot.press("G", "enter")
        await until(pilot, "Idea 11")
        await until(pilot, "asking 40 s")
        await pilot.press("slash", *"lanes", "enter", "N")
        await until(pilot, "▸")

    assert snap_compare(open_app(workspace, campaign=CAMPAIGN), terminal_size=(80, 24),
                        run_before=search_transcript)
