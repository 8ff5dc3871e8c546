"""The feed posts a snapshot only after a visible change, and survives faults."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.journal import lease, liveness
from engine.journal.liveness import Lease
from engine.journal.write import Writer
from kopt_tui.snapshot import feed as feeds
from kopt_tui.snapshot.feed import Feed
from kopt_tui.snapshot.snapshot import Focus, Snapshot
from tests.support.dashboards.dashboard_journal import (
    CAMPAIGN,
    NOW,
    Journal,
    make,
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make(tmp_path)


class FeedListener:
    """A running feed and a queue of the snapshots that it has posted."""

    def __init__(self, workspace: Path, focus: Focus) -> None:
        self.posted: queue.Queue[Snapshot] = queue.Queue()
        self.feed = Feed(workspace, self.posted.put, focus=focus)
        self.feed.start()

    def next(self, limit: float = 30.0) -> Snapshot:
        return self.posted.get(timeout=limit)

    def nothing(self, seconds: float) -> bool:
        """Return whether nothing is posted for some time."""
        try:
            self.posted.get(timeout=seconds)
        except queue.Empty:
            return True
        return False

    def close(self) -> None:
        self.feed.stop()
        self.feed.join(30)
        assert not self.feed.is_alive()


@pytest.fixture
def listener(workspace: Path) -> Iterator[FeedListener]:
    """Return a listener to a campaign whose engine is this process."""
    engine = Writer(workspace)
    lease.acquire(engine, CAMPAIGN)
    engine.close()
    listener = FeedListener(workspace, Focus(CAMPAIGN))
    yield listener
    listener.close()


def test_feed_posts_once_and_then_only_changes(workspace: Path, listener: FeedListener) -> None:
    first = listener.next()
    assert first.view is not None and first.view.row.id == CAMPAIGN
    assert listener.nothing(0.8)
    writer = Writer(workspace)
    writer.hold(CAMPAIGN, 1)
    writer.tick_slot(CAMPAIGN, 3, "fixed", detail="trial 14 of 24")
    second = listener.next()
    assert second.view is not None and second.view.slots[3].slot.detail == "trial 14 of 24"
    writer.tick_slot(CAMPAIGN, 3, "fixed", detail="trial 14 of 24")
    assert listener.nothing(1.5), "an unchanged slot causes no snapshot"
    writer.close()


def test_many_writes_cause_few_snapshots(workspace: Path, listener: FeedListener) -> None:
    listener.next()
    writer, began, ticks = Writer(workspace), time.monotonic(), 0
    writer.hold(CAMPAIGN, 1)
    while ticks < 40 or time.monotonic() - began < 1.0:
        ticks += 1
        writer.tick_slot(CAMPAIGN, 3, "fixed", detail=f"tick {ticks}")
        writer.event(CAMPAIGN, "log", message=f"line {ticks}")
    writer.close()
    count, last = 0, Snapshot()
    while last.view is None or last.view.slots[3].slot.detail != f"tick {ticks}":
        last, count = listener.next(), count + 1
    elapsed = time.monotonic() - began
    assert count <= elapsed / feeds.EVENT_GAP_S + 1


def test_new_focus_gets_a_snapshot_at_once(workspace: Path, listener: FeedListener) -> None:
    listener.next()
    listener.feed.look_at(Focus("matmul_c_cpu_20261119"))
    snapshot = listener.next()
    assert snapshot.view is not None and snapshot.view.row.campaign.op == "matmul"


def test_workspace_without_a_journal_is_empty_until_one_appears(tmp_path: Path) -> None:
    listener = FeedListener(tmp_path / "new", Focus())
    assert listener.next().campaigns == ()
    make(tmp_path / "new")
    assert len(listener.next().campaigns) == 3
    listener.close()


def test_newer_schema_is_reported_as_a_problem(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.db.execute("PRAGMA user_version = 99")
    journal.close()
    listener = FeedListener(tmp_path, Focus())
    assert "newer kopt" in listener.next().problem
    listener.close()


def test_last_good_state_stays_while_the_journal_is_unreadable(
        workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "PULSE_S", 0.1)
    listener = FeedListener(workspace, Focus(CAMPAIGN))
    good = listener.next()
    journal = Journal(workspace)
    journal.db.execute("PRAGMA user_version = 99")
    journal.db.execute("UPDATE campaigns SET state = 'nonsense'")
    journal.event(CAMPAIGN, NOW, "log", message="nonsense was written")
    broken = listener.next()
    assert broken.problem and broken.campaigns == good.campaigns
    journal.db.execute("UPDATE campaigns SET state = 'running'")
    journal.close()
    assert listener.next().problem == ""
    listener.close()


def test_dead_engine_is_noticed_without_a_write(
        workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "PULSE_S", 0.2)
    journal = Journal(workspace)
    journal.put(Lease(campaign=CAMPAIGN, host="elsewhere boot ns", pid=77, started=1.0, epoch=1,
                      heartbeat=time.time()))
    journal.close()
    listener = FeedListener(workspace, Focus())
    assert listener.next().campaigns[0].engine.word == "alive"
    monkeypatch.setattr(liveness, "STALE_S", 0.0)
    assert listener.next().campaigns[0].status == "lost"
    listener.close()
