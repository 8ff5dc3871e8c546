"""The lease of a campaign, and the writing connection that checks it and appends events.

One engine owns a campaign at a time; another may take over once it is dead.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from engine.journal import database
from engine.journal.database import OwnedConnection
from engine.journal.liveness import Lease, alive, host_name, process_start, this_host
from engine.journal.read import Reader, TransactionReader
from engine.journal.records import Event, JournalRow
from engine.journal.rows import Record, Value, fetch, payload, storable, store
from harness.errors import Refused


class LeaseLost(Refused):
    """This connection does not hold the campaign's lease, so it may not write."""


class LeasedConnection:
    """A writing connection to a workspace's journal, for the one thread that made it.

    Every write checks the campaign's lease epoch inside its transaction and raises LeaseLost if
    this connection does not hold it; a campaign that never had a lease may be written without one.
    Raises EnvironmentFault when the disk is full or the workspace cannot be written.
    """

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.path = workspace / database.FILE
        self._connection = OwnedConnection(database.open_for_writing(workspace))
        self._epochs: dict[str, int] = {}
        self._earlier: dict[str, int] = {}
        self._depth = 0

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit all of the block or, after an exception, nothing; nested ones are savepoints."""
        connection = self._connection.get()
        begin, commit, undo = _BRACKETS[self._depth > 0]
        with database.faults(self.path):
            connection.execute(begin)
            self._depth += 1
            try:
                yield connection
                connection.execute(commit)
            except BaseException:
                if connection.in_transaction:  # a full disk may have rolled back already
                    for statement in undo:
                        connection.execute(statement)
                raise
            finally:
                self._depth -= 1

    @contextmanager
    def change(self, campaign: str) -> Iterator[sqlite3.Connection]:
        """Open a transaction on a campaign. Raises LeaseLost unless its lease allows it."""
        with self.transaction() as connection:
            self.check_lease(campaign)
            yield connection

    def reader(self) -> Reader:
        """Return a reader that also sees what the open transaction has written."""
        return TransactionReader(self.workspace, self._connection)

    def lease(self, campaign: str) -> Lease | None:
        """Return the campaign's lease row; its pid is 0 after a release."""
        return self.one(Lease, "WHERE campaign = ?", campaign)

    def put_lease(self, lease: Lease) -> None:
        """Store a lease; call `hold` to write under it."""
        with self.transaction() as connection:
            store(connection, lease, verb="INSERT OR REPLACE")

    def hold(self, campaign: str, epoch: int | None, earlier: int = 0) -> None:
        """Write the campaign under this epoch from now on; None for no longer.

        `earlier` is the number of the last request that people had made by then.
        """
        if epoch is None:
            self._epochs.pop(campaign, None)
        else:
            self._epochs[campaign], self._earlier[campaign] = epoch, earlier

    def last_earlier_request(self, campaign: str) -> int:
        """Return the number of the last request before the campaign was acquired, 0 for none.

        Times do not tell: the clock may have been set back, or be another machine's.
        """
        return self._earlier.get(campaign, 0)

    def check_lease(self, campaign: str) -> None:
        """Raise LeaseLost unless this connection may write the campaign."""
        lease = self.lease(campaign)
        if (lease.epoch if lease else None) == self._epochs.get(campaign):
            return
        owner = f"process {lease.pid} on {host_name(lease)}" if lease and lease.pid else "none"
        raise LeaseLost(f"this engine does not hold the campaign's lease (owner: {owner})",
                        where=campaign)

    def append(self, campaign: str, kind: str, ref: str, fields: Mapping[str, object]) -> int:
        """Append an event inside the open transaction and return its sequence number."""
        event = Event(seq=0, campaign=campaign, at=time.time(), kind=kind, ref=ref,
                      payload=payload(fields))
        number = self.add(event, numbered="seq")
        self._connection.get().execute("UPDATE campaigns SET updated_at = ? WHERE id = ?",
                                       (event.at, campaign))
        return number

    def add(self, record: JournalRow, *, numbered: str = "") -> int:
        """Insert a record in the open transaction; return its number, by SQLite in `numbered`."""
        cursor = store(self._connection.get(), record, without=numbered)
        if cursor.lastrowid is None:
            raise AssertionError("the statement inserted no row")
        return cursor.lastrowid

    def all(self, record: type[Record], where: str, *parameters: Value) -> list[Record]:
        """Return the records that match `where`."""
        with database.faults(self.path):
            return fetch(self._connection.get(), record, where, parameters)

    def one(self, record: type[Record], where: str, *parameters: Value) -> Record | None:
        """Return the first record that matches `where`, None if there is none."""
        return next(iter(self.all(record, f"{where} LIMIT 1", *parameters)), None)

    @staticmethod
    def update(connection: sqlite3.Connection, table: str, fields: Mapping[str, Value],
               where: Mapping[str, Value]) -> None:
        """Change fields of the rows that `where` names; raises LookupError if there are none."""
        if not fields:
            return
        assignments = ", ".join(f'"{name}" = ?' for name in fields)
        condition = " AND ".join(f'"{name}" = ?' for name in where)
        cursor = connection.execute(
            f"UPDATE {table} SET {assignments} WHERE {condition}",
            [storable(value) for value in (*fields.values(), *where.values())])
        if cursor.rowcount == 0:
            raise LookupError(f"{table} has no row {dict(where)}")


_BRACKETS: dict[bool, tuple[str, str, tuple[str, ...]]] = {
    False: ("BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",)),
    True: ("SAVEPOINT inner", "RELEASE inner", ("ROLLBACK TO inner", "RELEASE inner")),
}
"""The statements that begin, commit and undo a transaction, by whether it is nested."""


def acquire(writer: LeasedConnection, campaign: str, *, answers_only: bool = False) -> Lease:
    """Acquire a campaign's lease, also from a dead owner. Raises Refused if its owner is alive."""
    pid = os.getpid()
    with writer.transaction() as connection:
        before = writer.lease(campaign)
        if before is not None and alive(before):
            raise Refused(
                f"campaign {campaign} is run by process {before.pid} on {host_name(before)}",
                fix="`kopt attach` shows it, `kopt stop` ends it",
            )
        lease = Lease(campaign=campaign, host=this_host(), pid=pid,
                      started=process_start(pid) or 0.0,
                      epoch=(before.epoch if before else 0) + 1, heartbeat=time.time(),
                      answers_only=answers_only)
        writer.put_lease(lease)
        (earlier,) = connection.execute(
            "SELECT coalesce(max(id), 0) FROM controls WHERE campaign = ?", (campaign,)).fetchone()
    writer.hold(campaign, lease.epoch, earlier)
    if before is not None and before.pid:
        with writer.change(campaign):
            writer.append(campaign, "log", "", {"message": (
                f"taken over from process {before.pid} on {host_name(before)}, which "
                f"{'has ended' if before.host == this_host() else 'no longer answers'}")})
    return lease


def heartbeat(writer: LeasedConnection, lease: Lease) -> Lease:
    """Renew the heartbeat; raises LeaseLost if another engine has taken over."""
    renewed = msgspec.structs.replace(lease, heartbeat=time.time())
    with writer.change(lease.campaign):
        writer.put_lease(renewed)
    return renewed


def release(writer: LeasedConnection, lease: Lease) -> None:
    """Release the campaign; the row stays, because its epoch must never be used twice."""
    with writer.change(lease.campaign):
        writer.put_lease(msgspec.structs.replace(lease, pid=0, heartbeat=time.time()))
    writer.hold(lease.campaign, None)
