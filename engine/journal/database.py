"""Open the journal's file: set the journal mode, migrate the schema, explain SQLite's errors."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.journal import liveness, migrations
from engine.journal.liveness import Lease
from harness.errors import EnvironmentFault, InputError, Refused
from harness.isolation.confinement import JOURNAL, JOURNAL_ENDS

FILE = JOURNAL
BUSY_S = 10.0
SCAN_S = 5.0
OPENING_S = 0.5
"""How long a writer may take between creating the WAL and its index."""

NETWORK_FILE_SYSTEMS = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "drvfs", "fuse.ceph", "fuse.glusterfs", "fuse.juicefs",
    "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
    "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs",
})
"""File systems whose shared memory other hosts cannot see. WAL mode needs it."""


def files(workspace: Path) -> tuple[str, ...]:
    """Return the journal's files: whoever may open one can lock it and so stop the engine."""
    return tuple(str(workspace / f"{FILE}{end}") for end in JOURNAL_ENDS)


def open_files() -> tuple[str, ...]:
    """Return the files of all journals that processes of this user have open, of any workspace."""
    folders: dict[Path, None] = {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended, or belongs to somebody else
            for descriptor in os.listdir(f"/proc/{process}/fd"):
                with contextlib.suppress(OSError):
                    path = Path(os.readlink(f"/proc/{process}/fd/{descriptor}"))
                    if path.name == FILE:
                        folders[path.parent] = None
    return tuple(path for folder in folders for path in files(folder))


def lately_open_files() -> tuple[str, ...]:
    """Return `open_files`, at most SCAN_S old: to read all of /proc takes several milliseconds."""
    return _scanned(int(time.monotonic() / SCAN_S))


@functools.lru_cache(maxsize=1)
def _scanned(period: int) -> tuple[str, ...]:
    return open_files()


class OwnedConnection:
    """A connection that only the thread that made it may use: others would corrupt transactions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._pid = os.getpid()
        self._thread = threading.get_ident()

    def get(self) -> sqlite3.Connection:
        if os.getpid() != self._pid:
            raise AssertionError("a journal connection was carried across a fork")
        if threading.get_ident() != self._thread:
            raise AssertionError("a journal connection was used by another thread")
        return self._connection

    def close(self) -> None:
        self.get().close()


def open_for_writing(workspace: Path) -> sqlite3.Connection:
    """Open the journal; create or migrate it first. Raises EnvironmentFault, InputError."""
    path = workspace / FILE
    make_workspace(workspace)
    with faults(path):
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def open_for_reading(workspace: Path) -> sqlite3.Connection | None:
    """Open the journal read-only, None if there is none; an older schema is migrated first."""
    path = workspace / FILE
    if not path.exists():
        return None
    with faults(path):
        connection = _read_only(path)
        try:
            version = schema_version(connection, path)
        except BaseException:
            connection.close()
            raise
        if 0 < version < migrations.SCHEMA_VERSION:
            connection.close()
            try:
                open_for_writing(workspace).close()
            except EnvironmentFault as fault:
                raise EnvironmentFault(
                    f"an older kopt wrote this journal (schema {version}), and it cannot be "
                    f"converted: {fault.what}", where=str(path),
                    fix="run kopt status once as a user who may write there, or copy the "
                        "workspace to a writable folder") from fault
            return _read_only(path)
        if version == 0:  # its writer has not committed the tables yet
            connection.close()
            return None
    return connection


def schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the file's schema version; raises InputError if it is too new or too old."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > migrations.SCHEMA_VERSION:
        raise InputError(
            f"written by a newer kopt (schema {version}, this kopt knows "
            f"{migrations.SCHEMA_VERSION})",
            where=str(path),
            fix="update kopt, or choose another --workspace",
        )
    if 0 < version < (oldest := min(migrations.MIGRATIONS)):
        raise InputError(f"too old (schema {version}, the oldest that can be read is {oldest})",
                         where=str(path), fix="choose another --workspace")
    return version


def file_system(path: Path, mounts: str | None = None) -> str:
    """Return the type of the file system that holds `path`, "" if it is not known."""
    try:
        table = Path("/proc/self/mounts").read_text() if mounts is None else mounts
    except OSError:
        return ""
    resolved = path.resolve()
    depth, kind = -1, ""
    for line in table.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[1]))
        if (resolved == mount or mount in resolved.parents) and len(mount.parts) >= depth:
            depth, kind = len(mount.parts), fields[2]
    return kind


@contextmanager
def faults(path: Path) -> Iterator[None]:
    """Turn SQLite's errors about `path` into faults with a fix."""
    try:
        yield
    except sqlite3.Error as error:
        if isinstance(error, sqlite3.ProgrammingError | sqlite3.IntegrityError):
            raise
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        what, fix = _FAULTS.get(code, (f"the journal failed: {error}", ""))
        raise EnvironmentFault(what, where=str(path), fix=fix) from error


WRITABLE = "choose a writable folder with --workspace"

_FAULTS: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_FULL: ("the disk is full", "free some space; nothing recorded was lost"),
    sqlite3.SQLITE_READONLY: ("the journal cannot be written", WRITABLE),
    sqlite3.SQLITE_CANTOPEN: ("the journal cannot be opened", WRITABLE),
    sqlite3.SQLITE_PERM: ("permission denied", WRITABLE),
    sqlite3.SQLITE_IOERR: ("the disk failed or is full", "check the file system"),
    sqlite3.SQLITE_BUSY: (f"another process held the journal for {BUSY_S:.0f} s", "try again"),
    sqlite3.SQLITE_CORRUPT: ("the journal is damaged", "move it away; campaigns keep their files"),
    sqlite3.SQLITE_NOTADB: ("not a kopt journal", "choose another --workspace"),
}


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.row_factory = sqlite3.Row
    schema_version(connection, path)
    mode = "truncate" if file_system(path.parent) in NETWORK_FILE_SYSTEMS else "wal"
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != mode:
        _set_journal_mode(connection, mode)
    connection.execute("PRAGMA synchronous=NORMAL")
    _migrate(connection, path)


def _set_journal_mode(connection: sqlite3.Connection, mode: str) -> None:
    """Change the mode, and wait for other connections: SQLite does not wait here by itself."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode={mode}").fetchone()
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    if schema_version(connection, path) == migrations.SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = schema_version(connection, path)
        if version == 0:
            migrations.run_script(connection, migrations.TABLES)
        elif version < migrations.SCHEMA_VERSION:
            _refuse_beside_older_engine(connection, path)
            for older in range(version, migrations.SCHEMA_VERSION):
                migrations.MIGRATIONS[older](connection)
        connection.execute(f"PRAGMA user_version={migrations.SCHEMA_VERSION}")
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _refuse_beside_older_engine(connection: sqlite3.Connection, path: Path) -> None:
    """Raise Refused while an engine of an older kopt runs: it would write the old schema."""
    for row in connection.execute("SELECT * FROM leases WHERE pid != 0"):
        lease = Lease(**dict(row))
        if liveness.alive(lease):
            raise Refused(
                f"process {lease.pid} on {liveness.host_name(lease)} runs {lease.campaign} with an "
                "older kopt; the journal cannot be converted before it ends", where=str(path),
                fix="wait, or end that process: kopt resume continues the campaign")


def _read_only(path: Path) -> sqlite3.Connection:
    """Open read-only; as an immutable file if the WAL's side files cannot be created.

    Tries again while a writer opens the journal: it creates the side files one after the other.
    """
    deadline = time.monotonic() + OPENING_S
    while True:
        try:
            return _connect_read_only(path, "mode=ro")
        except sqlite3.OperationalError:
            if not _wal(path).exists():
                return _connect_read_only(path, "mode=ro&immutable=1")
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def identity(path: Path) -> tuple[int, ...]:
    """Return a value that changes when a reader must open `path` again.

    It changes when the file is replaced. In a folder that is not writable, where the file may be
    open as immutable, it changes with the contents as well.
    """
    try:
        status = os.stat(path)
    except OSError:
        return ()
    if os.access(path.parent, os.W_OK):
        return (status.st_ino,)
    return (status.st_ino, status.st_mtime_ns, status.st_size, _wal(path).exists())


def _wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _connect_read_only(path: Path, flags: str) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?{flags}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("PRAGMA user_version").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def make_workspace(workspace: Path) -> None:
    """Make the folder, ignored by git, if it does not exist. Raises EnvironmentFault."""
    try:
        if not workspace.exists():
            workspace.mkdir(parents=True, exist_ok=True)
            (workspace / ".gitignore").write_text("*\n")
    except OSError as error:
        raise EnvironmentFault(f"cannot create the workspace: {error.strerror}",
                               where=str(workspace), fix="choose another --workspace") from error
