"""Access to the journal: only the lease's owner writes, and writers wait for each other."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from engine.journal import database, lease
from engine.journal.lease import LeaseLost
from engine.journal.read import Reader
from engine.journal.write import Writer
from harness.errors import EnvironmentFault
from tests.support.dashboards import samples


def test_engine_whose_lease_was_taken_over_writes_nothing(tmp_path: Path, writer: Writer) -> None:
    old = lease.acquire(writer, "rms")
    successor = Writer(tmp_path)
    successor.put_lease(msgspec.structs.replace(old, epoch=old.epoch + 1))
    successor.hold("rms", old.epoch + 1)
    events = len(Reader(tmp_path).last_events())
    attempts: list[Callable[[], object]] = [
        lambda: writer.event("rms", "log"),
        lambda: writer.add_candidate(samples.candidate()),
        lambda: writer.set_campaign("rms", kind="campaign.state", payload={}, state="stopped"),
        lambda: writer.tick_slot("rms", 1, "fixed-1", stage="x"),
        lambda: lease.heartbeat(writer, old),
        lambda: lease.release(writer, old),
    ]
    for attempt in attempts:
        with pytest.raises(LeaseLost):
            attempt()
    assert len(Reader(tmp_path).last_events()) == events
    successor.event("rms", "log")
    with pytest.raises(LeaseLost):
        Writer(tmp_path).event("rms", "log")


def test_connection_refuses_another_thread(writer: Writer, tmp_path: Path) -> None:
    reader, failures = Reader(tmp_path), []

    def use() -> None:
        for action in (lambda: writer.event("rms", "log"), reader.campaigns):
            try:
                action()
            except AssertionError as error:
                failures.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert len(failures) == 2
    assert all("another thread" in failure for failure in failures)


def test_connection_refuses_a_forked_child(writer: Writer) -> None:
    child = os.fork()
    if child == 0:
        try:
            writer.event("rms", "log")
        except AssertionError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_processes_may_create_the_same_journal_at_once(tmp_path: Path) -> None:
    code = ("import sys; from pathlib import Path; from engine.journal.write import Writer\n"
            "w = Writer(Path(sys.argv[1]))\n"
            "with w.transaction(): pass\n")
    started = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(4)]
    assert [process.wait(30) for process in started] == [0] * 4


def test_writers_wait_for_each_other_and_readers_do_not_wait(
    writer: Writer, tmp_path: Path
) -> None:
    reader, done = Reader(tmp_path), threading.Event()

    def other() -> None:
        Writer(tmp_path).add_campaign(samples.campaign("mm"))
        done.set()

    thread = threading.Thread(target=other)
    with writer.transaction():
        writer.event("rms", "log")
        thread.start()
        assert [c.id for c in reader.campaigns()] == ["rms"]
        assert not done.wait(0.2)
    thread.join(60)
    assert {c.id for c in reader.campaigns()} == {"rms", "mm"}


def test_lasting_lock_is_reported_in_one_line(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.1)
    other = Writer(tmp_path)
    with writer.transaction():
        with pytest.raises(EnvironmentFault, match="another process held") as fault:
            other.add_campaign(samples.campaign("mm"))
        assert "\n" not in str(fault.value)
    other.add_campaign(samples.campaign("mm"))


def test_killed_writer_leaves_whole_transactions(tmp_path: Path) -> None:
    """Each transaction writes a candidate with its verdict and decision, or none of them."""
    code = (
        "import sys, itertools; from pathlib import Path\n"
        "from tests.support.dashboards import samples; from engine.journal.write import Writer\n"
        "w = Writer(Path(sys.argv[1])); w.add_campaign(samples.campaign()); print('on', flush=True)"
        "\nfor n in itertools.count():\n"
        "    with w.transaction():\n"
        "        w.add_candidate(samples.candidate(f'c{n}'))\n"
        "        w.add_verdict('rms', f'c{n}', samples.verdict(), purpose='screen')\n"
        "        w.add_decision('rms', f'c{n}', 'tie', '', round=1, actor='judge')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)],
                               stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"on\n"
    reader, deadline = Reader(tmp_path), time.monotonic() + 60
    while len(reader.candidates("rms")) < 50:
        assert time.monotonic() < deadline
        os.sched_yield()
    process.kill()
    process.wait(60)
    process.stdout.close()
    kept = {c.id for c in reader.candidates("rms")}
    assert kept == {v.candidate for v in reader.verdicts("rms")}
    assert kept == {d.candidate for d in reader.decisions("rms")}
    assert len(reader.last_events(limit=10**6)) == 1 + 3 * len(kept)
