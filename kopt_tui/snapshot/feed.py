"""Threads that read for screens; one posts every change of the journal as a Snapshot."""

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

if TYPE_CHECKING:  # for start-up time, see `run`
    from engine.journal.read import Reader

POLL_S = 0.25
EVENT_GAP_S = 0.5
"""At most two repaints a second after events."""
TICK_GAP_S = 1.0
"""At most one repaint a second when only the progress of workers changed."""
PULSE_S = 2.0
"""Seconds between checks that engines are alive while nothing is written to the journal."""


class ReaderThread(threading.Thread):
    """A thread that reads for a screen until it is stopped; it may pause while none is watching."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._watched, self._wake, self._ended = (threading.Event() for _ in range(3))

    def watch(self, watched: bool) -> None:
        """Set whether a screen now shows what is read."""
        if watched:
            self._watched.set()
        else:
            self._watched.clear()

    def stop(self) -> None:
        """End the thread after its current poll or query."""
        for event in (self._ended, self._watched, self._wake):
            event.set()


class Feed(ReaderThread):
    """Polls the journal's version and posts a snapshot when the screen in front would change.

    `post` is called on this thread and must return at once. A journal that cannot be read becomes
    the `problem` of the last good snapshot, and is tried again.
    """

    def __init__(self, workspace: Path, post: Callable[[Snapshot], None], *,
                 focus: Focus | None = None, clock: Callable[[], float] = time.time) -> None:
        super().__init__("journal-feed")
        self.workspace = workspace
        self.latest = Snapshot()
        self._post = post
        self._clock = clock
        self._focus = focus or Focus()
        self._posted_at = -EVENT_GAP_S
        self._built_at = 0.0

    def look_at(self, focus: Focus) -> None:
        """Set what the screen in front shows; its snapshot follows at once."""
        if focus != self._focus:
            self._focus = focus
            self._wake.set()

    def run(self) -> None:
        import sqlite3  # here and below: what reads the journal is loaded after the first paint

        from engine.journal.read import Reader

        reader = None
        while not self._ended.is_set():
            try:
                reader = reader or Reader(self.workspace)
                self._read_until_ended(reader)
            except (KoptError, sqlite3.Error, OSError, msgspec.ValidationError) as error:
                self._publish(msgspec.structs.replace(self.latest, problem=_problem(error)))
                self._ended.wait(PULSE_S)
        if reader is not None:
            reader.close()

    def _read_until_ended(self, reader: Reader) -> None:
        from kopt_tui.snapshot.snapshot_builder import Builder

        builder = Builder(self.workspace, reader, self._clock)
        version, last_focus = 0, None
        while not self._ended.is_set():
            now = time.monotonic()
            focus = self._focus
            current = reader.data_version()
            has_new_focus = focus != last_focus
            has_changed = current != version or (now - self._built_at > PULSE_S and any(
                row.engine.word == "alive" for row in self.latest.campaigns))
            if has_new_focus or (has_changed and now - self._posted_at >= EVENT_GAP_S):
                snapshot = builder.snapshot(focus)
                self._built_at = now
                # Events are posted at once; progress alone waits and is read again at each poll.
                is_due = snapshot.seq != self.latest.seq or now - self._posted_at >= TICK_GAP_S
                if has_new_focus or is_due:
                    self._publish(snapshot)
                version, last_focus = current if has_new_focus or is_due else -1, focus
            self._wake.wait(POLL_S)
            self._wake.clear()

    def _publish(self, snapshot: Snapshot) -> None:
        is_same = snapshot.looks_like(self.latest) and self.latest.at > 0
        self.latest = snapshot
        if not is_same:
            self._posted_at = time.monotonic()
            self._post(snapshot)


def _problem(error: Exception) -> str:
    """Return an error without its `where`, so that the cause fits into the line."""
    if isinstance(error, KoptError):
        fix = f"; {error.fix}" if error.fix else ""
        return phrases.clean(f"journal: {error.what}{fix}", 300)
    return phrases.clean(f"journal: {error}", 300)
