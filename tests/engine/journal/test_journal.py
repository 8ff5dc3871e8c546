"""The journal: state and event together, one writer, fast readers, faults in one line."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from engine.journal import database, lease, migrations
from engine.journal.leased_connection import LeaseLost
from engine.journal.read import Reader
from engine.journal.records import Bottleneck, Control
from engine.journal.write import Writer, request
from harness.errors import EnvironmentFault, InputError, KoptError
from tests.support import samples


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    made = Writer(tmp_path)
    made.add_campaign(samples.campaign())
    return made


def payload_of(reader: Reader, kind: str) -> dict[str, object]:
    found = [e for e in reader.last_events("rms") if e.kind == kind]
    return msgspec.json.decode(found[-1].payload, type=dict[str, object])


def test_an_empty_workspace_reads_as_empty(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "not-there-yet")
    assert reader.data_version() == 0
    assert reader.campaigns() == []
    assert reader.campaign("rms") is None
    assert reader.last_events() == []
    assert reader.waiting_counts() == {}


def test_a_reader_sees_a_journal_that_appears_and_one_that_is_replaced(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    first = Writer(tmp_path)
    first.add_campaign(samples.campaign("one"))
    seen = reader.data_version()
    assert seen > 0
    assert [c.id for c in reader.campaigns()] == ["one"]
    first.close()
    for file in tmp_path.iterdir():
        file.unlink()
    Writer(tmp_path).add_campaign(samples.campaign("two"))
    assert reader.data_version() != seen
    assert [c.id for c in reader.campaigns()] == ["two"]


def test_every_change_can_be_read_back_and_has_its_event(writer: Writer, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    writer.start_round(samples.round_())
    writer.put_slots([samples.slot("planned-1", kind="planned"), samples.slot("fixed-1")])
    writer.add_candidate(samples.candidate())
    number = writer.add_verdict("rms", "c1", samples.verdict(), purpose="screen")
    writer.set_candidate_state("rms", "c1", "verified")
    writer.add_decision("rms", "c1", "keep", "1.5x, all classes", round=1, actor="judge",
                        verdict=number)
    writer.set_candidate_state("rms", "c1", "kept", commit="k1")
    writer.set_campaign("rms", kind="campaign.best", payload={"commit": "k1"}, best_commit="k1",
                        speedup=1.5)
    writer.tick_slot("rms", 1, "fixed-1", progress=0.5)
    writer.end_slot("rms", 1, "fixed-1", stage="done", candidate="c1")
    writer.end_round("rms", 1, outcome="keep", summary="unrolled", best_speedup=1.5)
    writer.put_bottlenecks("rms", 1, [Bottleneck(
        campaign="rms", round=1, rank=1, id="b1", kernel="rmsnorm", config_class="tall",
        limiter="memory", metric="copy bandwidth", value=0.4, detail="", advice="block it")])
    assert [e.kind for e in reader.last_events("rms")] == [
        "campaign.created", "round.start", "slot.start", "slot.start", "candidate.captured",
        "verdict", "candidate.state", "decision", "candidate.state", "campaign.best", "slot.end",
        "round.end", "bottlenecks",
    ]
    best = reader.campaign("rms")
    assert best is not None
    assert (best.best_commit, best.speedup, best.round) == ("k1", 1.5, 1)
    assert [s.slot for s in reader.slots("rms", 1)] == ["planned-1", "fixed-1"]
    assert reader.slots("rms", 1)[1].progress == 1.0, "what has ended is not half done"
    assert reader.candidate("c").commit == "k1"
    assert reader.verdicts("rms", candidate="c1")[0].correct is True
    assert msgspec.json.decode(reader.verdicts("rms")[0].body)["speedup"] == 1.5
    assert reader.decisions("rms")[0].reason == "1.5x, all classes"
    assert reader.bottlenecks("rms")[0].advice == "block it"
    assert reader.rounds("rms")[0].outcome == "keep"
    assert payload_of(reader, "verdict")["slot"] == "fixed-1"
    assert payload_of(reader, "decision")["kind"] == "keep"


def test_a_tick_is_no_event_but_wakes_readers(writer: Writer, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    writer.put_slots([samples.slot()])
    before, events = reader.data_version(), len(reader.last_events())
    assert reader.data_version() == before
    writer.tick_slot("rms", 1, "fixed-1", stage="timing", detail="pair 3", progress=0.5)
    assert reader.data_version() != before
    assert len(reader.last_events()) == events
    writer.tick_slot("rms", 1, "fixed-1", progress=0.6)
    seen = reader.slots("rms", 1)[0]
    assert (seen.stage, seen.detail, seen.progress) == ("timing", "pair 3", 0.6)


def test_nothing_of_a_failed_transaction_stays(writer: Writer, tmp_path: Path) -> None:
    with pytest.raises(LookupError), writer.transaction():
        writer.add_candidate(samples.candidate())
        writer.set_candidate_state("rms", "other", "verified")
    assert Reader(tmp_path).candidates("rms") == []
    assert [e.kind for e in Reader(tmp_path).last_events()] == ["campaign.created"]


def test_an_inner_failure_that_is_caught_leaves_no_half_change(
    writer: Writer, tmp_path: Path
) -> None:
    with writer.transaction():
        writer.add_candidate(samples.candidate())
        with pytest.raises(RuntimeError), writer.transaction():
            writer.add_candidate(samples.candidate("c2"))
            raise RuntimeError("changed its mind")
    assert [c.id for c in Reader(tmp_path).candidates("rms")] == ["c1"]


def test_recorded_things_are_not_repeated(writer: Writer, tmp_path: Path) -> None:
    assert writer.add_candidate(samples.candidate())
    assert not writer.add_candidate(samples.candidate(slot="fixed-2"))
    first = writer.add_verdict("rms", "c1", samples.verdict(), purpose="screen")
    again = writer.add_verdict("rms", "c1", samples.verdict(speedup=9.0), purpose="screen")
    other = writer.add_verdict("rms", "c1", samples.verdict(incumbent_tree="t1"), purpose="screen")
    assert first == again != other
    reader = Reader(tmp_path)
    assert [e.kind for e in reader.last_events()].count("verdict") == 2
    known = reader.verdict("rms", "c1", purpose="screen", incumbent_tree="t0",
                           harness_version="1")
    assert known is not None
    assert known.speedup == 1.5
    assert not reader.verdict("rms", "c1", purpose="confirm", incumbent_tree="t0",
                              harness_version="1")


def test_a_kept_candidate_stays_kept(writer: Writer) -> None:
    writer.add_candidate(samples.candidate())
    writer.set_candidate_state("rms", "c1", "kept", commit="k1")
    with pytest.raises(ValueError, match="kept"):
        writer.set_candidate_state("rms", "c1", "closed")


def test_candidate_prefixes(writer: Writer, tmp_path: Path) -> None:
    writer.add_campaign(samples.campaign("mm"))
    for name in ("abc1", "abd2", "ab"):
        writer.add_candidate(samples.candidate(name))
    writer.add_candidate(samples.candidate("abc1", "mm"))
    reader = Reader(tmp_path)
    assert reader.candidate("ab").id == "ab"
    assert reader.candidate("abd").id == "abd2"
    assert reader.candidate("abc", "mm").campaign == "mm"
    for wrong, why in (("abc", "ambiguous"), ("zz", "no candidate"), ("", "no candidate"),
                       ("%", "no candidate"), ("'; --", "no candidate")):
        with pytest.raises(InputError, match=why):
            reader.candidate(wrong)


def test_waiting_counts_and_states(writer: Writer, tmp_path: Path) -> None:
    for n in range(5):
        writer.add_candidate(samples.candidate(f"c{n}", state="waiting" if n % 2 else "closed"))
    reader = Reader(tmp_path)
    assert reader.waiting_counts() == {"rms": 2}
    assert [c.id for c in reader.candidates("rms", states=("waiting",))] == ["c1", "c3"]
    assert len(reader.candidates("rms", states=("waiting", "closed"))) == 5


def test_events_are_paged_by_sequence(writer: Writer, tmp_path: Path) -> None:
    for n in range(9):
        writer.event("rms", "log", n=n)
    reader = Reader(tmp_path)
    first = reader.events(campaign="rms", limit=4)
    rest = reader.events(campaign="rms", after=first[-1].seq)
    assert [e.seq for e in first + rest] == sorted(e.seq for e in first + rest)
    assert len(first + rest) == 10
    assert [e.seq for e in reader.last_events(limit=3)] == [e.seq for e in rest[-3:]]


def test_hostile_text_is_stored_as_data(writer: Writer, tmp_path: Path) -> None:
    text = "\x1b[31m[bold]\udcff\x00 drop table events; ' \" --" + "x" * 5000
    writer.add_candidate(samples.candidate(hypothesis=text))
    writer.event("rms", "warning", text, message=text, parts=[text, {"deep": text}])
    reader = Reader(tmp_path)
    assert reader.candidate("c1").hypothesis.startswith("\x1b[31m[bold]?")
    assert len(payload_of(reader, "warning")["message"]) <= 600  # type: ignore[arg-type]


# controls


def test_controls_are_asked_by_anyone_and_answered_once(writer: Writer, tmp_path: Path) -> None:
    held = lease.acquire(writer, "rms")
    number = request(tmp_path, "rms", "approve", by="ann", candidate="c1", expected_base="b0",
                     expected_verdict=7)
    assert [c.id for c in writer.open_controls("rms")] == [number]
    writer.finish_control(number, "kept as k1")
    writer.finish_control(number, "too late")
    assert writer.open_controls("rms") == []
    reader = Reader(tmp_path)
    answered = reader.controls("rms")[0]
    assert isinstance(answered, Control)
    assert (answered.outcome, answered.expected_verdict) == ("kept as k1", 7)
    assert reader.controls("rms", open_only=True) == []
    assert [e.kind for e in reader.last_events()][-2:] == ["control.requested", "control.applied"]
    with pytest.raises(InputError, match="no campaign"):
        request(tmp_path, "nope", "stop", by="ann")
    lease.release(writer, held)


# who may write


def test_a_stale_epoch_writes_nothing(tmp_path: Path, writer: Writer) -> None:
    old = lease.acquire(writer, "rms")
    usurper = Writer(tmp_path)
    usurper.put_lease(msgspec.structs.replace(old, epoch=old.epoch + 1))
    usurper.hold("rms", old.epoch + 1)
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
    usurper.event("rms", "log")
    with pytest.raises(LeaseLost):
        Writer(tmp_path).event("rms", "log")


def test_a_connection_stays_with_its_thread(writer: Writer, tmp_path: Path) -> None:
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


def test_a_connection_does_not_cross_a_fork(writer: Writer) -> None:
    child = os.fork()
    if child == 0:
        try:
            writer.event("rms", "log")
        except AssertionError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_two_processes_can_make_the_same_journal(tmp_path: Path) -> None:
    code = ("import sys; from pathlib import Path; from engine.journal.write import Writer\n"
            "w = Writer(Path(sys.argv[1]))\n"
            "with w.transaction(): pass\n")
    started = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(4)]
    assert [process.wait(30) for process in started] == [0] * 4


def test_writers_wait_for_each_other_and_readers_wait_for_none(
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
    thread.join(10)
    assert {c.id for c in reader.campaigns()} == {"rms", "mm"}


def test_a_journal_that_stays_locked_is_one_line(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.1)
    other = Writer(tmp_path)
    with writer.transaction():
        with pytest.raises(EnvironmentFault, match="another process held") as fault:
            other.add_campaign(samples.campaign("mm"))
        assert "\n" not in str(fault.value)
    other.add_campaign(samples.campaign("mm"))


# schema, files and faults


def test_a_newer_schema_is_refused_in_one_line(writer: Writer, tmp_path: Path) -> None:
    writer.close()
    connection = sqlite3.connect(tmp_path / "kopt.db")
    connection.execute(f"PRAGMA user_version={migrations.SCHEMA_VERSION + 1}")
    connection.close()
    for open_it in (Writer, Reader):
        with pytest.raises(InputError, match="newer kopt") as refusal:
            open_it(tmp_path)
        assert "\n" not in str(refusal.value)


def test_an_older_schema_is_migrated_forward(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.close()
    version = migrations.SCHEMA_VERSION
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", version + 2)
    monkeypatch.setitem(migrations.MIGRATIONS, version, "ALTER TABLE rounds ADD COLUMN a TEXT;\n")
    monkeypatch.setitem(migrations.MIGRATIONS, version + 1,
                        "ALTER TABLE rounds ADD COLUMN b TEXT;\nCREATE INDEX i ON rounds (b);\n")
    assert [c.id for c in Reader(tmp_path).campaigns()] == ["rms"]
    connection = sqlite3.connect(tmp_path / "kopt.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (version + 2,)
    assert connection.execute("SELECT a, b FROM rounds").fetchall() == []


def test_a_failed_migration_changes_nothing(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.close()
    version = migrations.SCHEMA_VERSION
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", version + 1)
    monkeypatch.setitem(migrations.MIGRATIONS, version,
                        "ALTER TABLE rounds ADD COLUMN a TEXT;\nALTER TABLE nope ADD b TEXT;\n")
    with pytest.raises(KoptError):
        Writer(tmp_path)
    connection = sqlite3.connect(tmp_path / "kopt.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (version,)
    with pytest.raises(sqlite3.OperationalError):
        connection.execute("SELECT a FROM rounds")


def test_the_journal_mode_follows_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Writer(tmp_path / "local").close()
    monkeypatch.setattr(database, "file_system", lambda path: "nfs4")
    Writer(tmp_path / "remote").close()
    modes = [
        sqlite3.connect(tmp_path / place / "kopt.db").execute("PRAGMA journal_mode").fetchone()[0]
        for place in ("local", "remote")
    ]
    assert modes == ["wal", "delete"]  # only WAL is written into the file


@pytest.mark.parametrize(("path", "kind"), [
    ("/home/ann/w", "nfs4"), ("/home", "ext4"), ("/", "ext4"), ("/mnt/my disk/w", "fuse.sshfs"),
    ("/home/anna", "ext4"),
])
def test_the_file_system_is_that_of_the_deepest_mount(path: str, kind: str) -> None:
    mounts = ("/dev/a / ext4 rw 0 0\nserver:/x /home/ann nfs4 rw 0 0\n"
              "me@there: /mnt/my\\040disk fuse.sshfs rw 0 0\n\nodd\n")
    assert database.file_system(Path(path), mounts) == kind


def test_a_workspace_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot make the workspace"):
        Writer(tmp_path / "file" / "workspace")


def test_a_file_that_is_no_journal_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "kopt.db").write_text("not a database at all, but text" * 50)
    for open_it in (Writer, Reader):
        with pytest.raises(EnvironmentFault, match="not a kopt journal"):
            open_it(tmp_path)


def test_a_full_disk_loses_nothing_and_says_so(tmp_path: Path) -> None:
    """A file-size limit stands in for the disk: the kernel refuses the very same writes."""
    child = os.fork()
    if child == 0:
        os._exit(_fill(tmp_path))
    assert os.waitpid(child, 0)[1] == 0
    assert [e.kind for e in Reader(tmp_path).last_events()] == ["campaign.created", "log"]


def _fill(workspace: Path) -> int:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    writer = Writer(workspace)
    writer.add_campaign(samples.campaign())
    size = (workspace / "kopt.db-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        writer.event("rms", "warning")
        return 1
    except EnvironmentFault as fault:
        told = str(fault)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    writer.event("rms", "log")
    return 0 if "disk" in told and "\n" not in told else 2


@pytest.fixture
def shared() -> Iterator[Path]:
    """A workspace that others may read and not write, with one campaign and no open writer."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "w"
        writer = Writer(workspace)
        writer.add_campaign(samples.campaign())
        writer.close()
        for path in (Path(folder), workspace):
            path.chmod(0o555)
        yield workspace
        for path in (Path(folder), workspace):
            path.chmod(0o755)


def as_another(task: Callable[[], int]) -> int:
    """Start a child that may write nothing here and exits with what the task returns."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            if os.geteuid() == 0:
                os.setuid(65534)  # root may write anything
            status = task()
        finally:
            os._exit(status)
    return child


def test_a_read_only_workspace_can_be_read_but_not_written(shared: Path) -> None:
    """Without its WAL's side files, which a reader there cannot make."""
    child = as_another(lambda: _read_only(shared))
    assert os.waitpid(child, 0)[1] == 0


def _read_only(workspace: Path) -> int:
    if [c.id for c in Reader(workspace).campaigns()] != ["rms"]:
        return 1
    for attempt in (lambda: Writer(workspace), lambda: request(workspace, "rms", "stop", by="me"),
                    lambda: Writer(workspace / "deeper")):
        try:
            attempt()
            return 2
        except EnvironmentFault as fault:
            if "\n" in str(fault) or "--workspace" not in str(fault):
                return 3
    return 0


@pytest.mark.parametrize("stays_open", [True, False])
def test_a_watcher_without_rights_follows_a_writer(shared: Path, stays_open: bool) -> None:
    ready, tell = os.pipe()
    child = as_another(lambda: _watch(shared, tell))
    assert os.read(ready, 1) == b"r"
    shared.chmod(0o755)
    writer = Writer(shared)
    writer.add_campaign(samples.campaign("mm"))
    if not stays_open:
        writer.close()
    if os.geteuid() != 0:
        shared.chmod(0o555)
    assert os.waitpid(child, 0)[1] == 0


def _watch(workspace: Path, tell: int) -> int:
    reader = Reader(workspace)
    seen = reader.data_version()
    if [c.id for c in reader.campaigns()] != ["rms"]:
        return 1
    os.write(tell, b"r")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if reader.data_version() != seen and len(reader.campaigns()) == 2:
            return 0
        os.sched_yield()
    return 2


def test_a_killed_writer_leaves_whole_transactions(tmp_path: Path) -> None:
    """Each transaction writes a candidate, its verdict and decision: all of them or none."""
    code = (
        "import sys, itertools; from pathlib import Path\n"
        "from tests.support import samples; from engine.journal.write import Writer\n"
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
    process.stdout.readline()
    reader, deadline = Reader(tmp_path), time.monotonic() + 60
    while len(reader.candidates("rms")) < 50:
        assert time.monotonic() < deadline
        os.sched_yield()
    process.kill()
    process.wait(10)
    process.stdout.close()
    kept = {c.id for c in reader.candidates("rms")}
    assert kept == {v.candidate for v in reader.verdicts("rms")}
    assert kept == {d.candidate for d in reader.decisions("rms")}
    assert len(reader.last_events(limit=10**6)) == 1 + 3 * len(kept)


def test_reading_does_not_grow_with_the_log(writer: Writer, tmp_path: Path) -> None:
    """What a dashboard needs of 100,000 events takes SQLite few steps (it does 10^8 a second)."""
    with writer.transaction() as connection:
        connection.executemany(
            "INSERT INTO events (campaign, at, kind, ref, payload) VALUES ('rms', ?, 'log', '',"
            " ?)", ((float(n), b'{"message":"pair %d of 40"}' % n) for n in range(100_000)))
    reader, steps = Reader(tmp_path), 0

    def count() -> int:
        nonlocal steps
        steps += 100
        return 0

    open_connection = reader._open()
    assert open_connection is not None
    open_connection.set_progress_handler(count, 100)
    campaign = reader.campaigns()[0]
    for read in (reader.lease, reader.rounds, reader.candidates, reader.verdicts,
                 reader.decisions, reader.bottlenecks, reader.controls):
        assert not read("rms")
    assert reader.slots("rms", campaign.round) == []
    assert reader.waiting_counts() == {}
    assert len(reader.last_events("rms")) == len(reader.last_events()) == 200
    assert len(reader.events(campaign="rms", after=99_000)) == 200
    assert steps < 20_000
