"""The journal's file: its schema and mode, and faults that are reported in one line."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.journal import database, lease, migrations
from engine.journal.read import Reader
from engine.journal.write import Writer, request
from harness.errors import EnvironmentFault, InputError, KoptError, Refused
from tests.support.dashboards import samples


def test_newer_schema_is_refused_in_one_line(writer: Writer, tmp_path: Path) -> None:
    writer.close()
    connection = sqlite3.connect(tmp_path / "kopt.db")
    connection.execute(f"PRAGMA user_version={migrations.SCHEMA_VERSION + 1}")
    connection.close()
    for open_it in (Writer, Reader):
        with pytest.raises(InputError, match="newer kopt") as refusal:
            open_it(tmp_path)
        assert "\n" not in str(refusal.value)


def adding(table: str, column: str) -> Callable[[sqlite3.Connection], None]:
    """Return the migration that adds a column to a table."""
    def migrate(connection: sqlite3.Connection) -> None:
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} TEXT")

    return migrate


def test_older_schema_is_migrated_forward(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.close()
    version = migrations.SCHEMA_VERSION
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", version + 2)
    for older, column in ((version, "a"), (version + 1, "b")):
        monkeypatch.setitem(migrations.MIGRATIONS, older, adding("rounds", column))
    assert [c.id for c in Reader(tmp_path).campaigns()] == ["rms"]
    connection = sqlite3.connect(tmp_path / "kopt.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (version + 2,)
    assert connection.execute("SELECT a, b FROM rounds").fetchall() == []


def test_failed_migration_changes_nothing(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.close()
    version = migrations.SCHEMA_VERSION
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", version + 2)
    monkeypatch.setitem(migrations.MIGRATIONS, version, adding("rounds", "a"))
    monkeypatch.setitem(migrations.MIGRATIONS, version + 1, adding("nope", "b"))
    with pytest.raises(KoptError):
        Writer(tmp_path)
    connection = sqlite3.connect(tmp_path / "kopt.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (version,)
    with pytest.raises(sqlite3.OperationalError):
        connection.execute("SELECT a FROM rounds")


def test_journal_mode_follows_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Writer(tmp_path / "local").close()
    monkeypatch.setattr(database, "file_system", lambda path: "nfs4")
    Writer(tmp_path / "remote").close()
    modes = [
        sqlite3.connect(tmp_path / place / "kopt.db").execute("PRAGMA journal_mode").fetchone()[0]
        for place in ("local", "remote")
    ]
    assert modes == ["wal", "delete"]  # only WAL is stored in the file


@pytest.mark.parametrize(("path", "kind"), [
    ("/home/ann/w", "nfs4"), ("/home", "ext4"), ("/", "ext4"), ("/mnt/my disk/w", "fuse.sshfs"),
    ("/home/anna", "ext4"),
])
def test_file_system_is_that_of_the_deepest_mount(path: str, kind: str) -> None:
    mounts = ("/dev/a / ext4 rw 0 0\nserver:/x /home/ann nfs4 rw 0 0\n"
              "me@there: /mnt/my\\040disk fuse.sshfs rw 0 0\n\nodd\n")
    assert database.file_system(Path(path), mounts) == kind


def test_workspace_that_cannot_be_created_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot create the workspace"):
        Writer(tmp_path / "file" / "workspace")


def test_file_that_is_not_a_journal_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "kopt.db").write_text("not a database at all, but text" * 50)
    for open_it in (Writer, Reader):
        with pytest.raises(EnvironmentFault, match="not a kopt journal"):
            open_it(tmp_path)


def test_full_disk_is_reported_and_loses_nothing(tmp_path: Path) -> None:
    """A file-size limit takes the place of a full disk: the kernel refuses the same writes."""
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
        message = str(fault)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    writer.event("rms", "log")
    return 0 if "disk" in message and "\n" not in message else 2


@pytest.fixture
def shared() -> Iterator[Path]:
    """Make a workspace that others may only read, with one campaign and no open writer."""
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


def as_other_user(task: Callable[[], int]) -> int:
    """Return the id of a child process without write access; it exits with the task's result."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            if os.geteuid() == 0:
                os.setuid(65534)  # not root, who could write
            status = task()
        finally:
            os._exit(status)
    return child


def test_read_only_workspace_can_be_read_but_not_written(shared: Path) -> None:
    """The WAL's side files are missing there, and a reader cannot create them."""
    child = as_other_user(lambda: _read_only(shared))
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


def test_older_journal_in_a_read_only_workspace_says_how_to_convert_it(shared: Path) -> None:
    connection = sqlite3.connect(shared / "kopt.db")
    connection.execute(f"PRAGMA user_version={migrations.SCHEMA_VERSION - 1}")
    connection.close()
    child = as_other_user(lambda: _read_older(shared))
    assert os.waitpid(child, 0)[1] == 0


def test_journal_is_not_converted_while_an_older_engine_runs(tmp_path: Path) -> None:
    """The older engine would go on recording trials as events, which only a conversion reads."""
    writer = Writer(tmp_path)
    writer.add_campaign(samples.campaign("rms"))
    owner = lease.acquire(writer, "rms")
    older = migrations.SCHEMA_VERSION - 1
    connection = sqlite3.connect(tmp_path / "kopt.db")
    connection.execute(f"PRAGMA user_version={older}")
    for journal in (Reader, Writer):
        with pytest.raises(Refused, match=f"process {owner.pid} .* runs rms with an older kopt"):
            journal(tmp_path).campaigns()
    assert connection.execute("PRAGMA user_version").fetchone() == (older,)


def _read_older(workspace: Path) -> int:
    try:
        Reader(workspace).campaigns()
    except EnvironmentFault as fault:
        return 0 if "an older kopt wrote this journal" in fault.what \
            and "copy the workspace to a writable folder" in fault.fix else 3
    return 2


def test_reader_opens_again_while_a_writer_creates_the_side_files(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.close()
    connect, failed = database._connect_read_only, list[str]()

    def fail_once(path: Path, flags: str) -> sqlite3.Connection:
        if not failed:
            failed.append(flags)
            Path(f"{path}-wal").touch()
            raise sqlite3.OperationalError("unable to open database file")
        return connect(path, flags)

    monkeypatch.setattr(database, "_connect_read_only", fail_once)
    assert [campaign.id for campaign in Reader(tmp_path).campaigns()] == ["rms"]
    assert failed == ["mode=ro"]


@pytest.mark.parametrize("stays_open", [True, False])
def test_reader_without_write_access_follows_a_writer(shared: Path, stays_open: bool) -> None:
    ready, tell = os.pipe()
    child = as_other_user(lambda: _watch(shared, tell))
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
