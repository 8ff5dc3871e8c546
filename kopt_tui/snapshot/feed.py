"""The one thread that reads the journal and posts what changed as an immutable Snapshot."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.errors import KoptError
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import Focus, Snapshot

if TYPE_CHECKING:
    from engine.journal.read import Reader

POLL_S = 0.25
EVENT_GAP_S = 0.5
"""At most two repaints a second when something happened."""
TICK_GAP_S = 1.0
"""At most one when workers only moved on."""
PULSE_S = 2.0
"""How often the life of an engine is looked at although nobody wrote anything."""


class Feed(threading.Thread):
    """Polls the journal's version and posts a snapshot when what the front screen shows differs.

    `post` is called on this thread and must only hand over. A journal that cannot be read is a
    `problem` in the last good snapshot, and it is tried again.
    """

    def __init__(self, workspace: Path, post: Callable[[Snapshot], None], *,
                 focus: Focus | None = None, clock: Callable[[], float] = time.time) -> None:
        super().__init__(name="journal-feed", daemon=True)
        self.workspace = workspace
        self.latest = Snapshot()
        self._post = post
        self._clock = clock
        self._focus = focus or Focus()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._posted_at = -EVENT_GAP_S
        self._built_at = 0.0

    def look_at(self, focus: Focus) -> None:
        """Say what the screen in front shows; its snapshot follows at once."""
        if focus != self._focus:
            self._focus = focus
            self._wake.set()

    def stop(self) -> None:
        """End the thread; it is gone within a poll."""
        self._ended.set()
        self._wake.set()

    def run(self) -> None:
        import sqlite3  # here and below: nothing of the journal is loaded before the first paint

        from engine.journal.read import Reader

        reader = None
        while not self._ended.is_set():
            try:
                reader = reader or Reader(self.workspace)
                self._read_until_ended(reader)
            except (KoptError, sqlite3.Error, OSError, msgspec.ValidationError) as error:
                self._tell(msgspec.structs.replace(self.latest, problem=_told(error)))
                self._ended.wait(PULSE_S)
        if reader is not None:
            reader.close()

    def _read_until_ended(self, reader: Reader) -> None:
        from kopt_tui.snapshot.builder import Builder

        builder = Builder(self.workspace, reader, self._clock)
        version, looked_at, first = 0, Focus(), True
        while not self._ended.is_set():
            now = time.monotonic()
            focus = self._focus
            seen = reader.data_version()
            moved = first or focus != looked_at
            changed = seen != version or (now - self._built_at > PULSE_S and self._any_engine())
            if moved or (changed and now - self._posted_at >= EVENT_GAP_S):
                snapshot = builder.snapshot(focus)
                version, looked_at, first = seen, focus, False
                self._built_at = now
                if builder.incomplete:
                    version = -1
                if not moved and not self._due(snapshot, now):
                    version = -1
                else:
                    self._tell(snapshot)
            self._wake.wait(POLL_S)
            self._wake.clear()

    def _due(self, snapshot: Snapshot, now: float) -> bool:
        """Return whether enough time has passed: events come at once, mere progress waits."""
        return snapshot.seq != self.latest.seq or now - self._posted_at >= TICK_GAP_S

    def _any_engine(self) -> bool:
        return any(row.engine.word == "alive" for row in self.latest.campaigns)

    def _tell(self, snapshot: Snapshot) -> None:
        same = snapshot.same_picture(self.latest) and self.latest.at > 0
        self.latest = snapshot
        if not same:
            self._posted_at = time.monotonic()
            self._post(snapshot)


def _told(error: Exception) -> str:
    """Return a fault with what happened first, since the line may be short."""
    if isinstance(error, KoptError):
        fix = f"; {error.fix}" if error.fix else ""
        return phrases.clean(f"journal: {error.what}{fix}", 300)
    return phrases.clean(f"journal: {error}", 300)
