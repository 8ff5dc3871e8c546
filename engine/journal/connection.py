"""One SQLite connection that belongs to one thread of one process."""

from __future__ import annotations

import os
import sqlite3
import threading


class OwnedConnection:
    """Hands out its connection only to the thread and process that made it.

    Sharing one across threads or a fork corrupts transactions silently, so it raises
    AssertionError instead.
    """

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
